package lancestat.relation;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.CatalystTypeConverters$;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.sources.And;
import org.apache.spark.sql.sources.EqualNullSafe;
import org.apache.spark.sql.sources.EqualTo;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.GreaterThan;
import org.apache.spark.sql.sources.GreaterThanOrEqual;
import org.apache.spark.sql.sources.In;
import org.apache.spark.sql.sources.IsNotNull;
import org.apache.spark.sql.sources.IsNull;
import org.apache.spark.sql.sources.LessThan;
import org.apache.spark.sql.sources.LessThanOrEqual;
import org.apache.spark.sql.sources.Not;
import org.apache.spark.sql.sources.Or;
import org.apache.spark.sql.sources.StringContains;
import org.apache.spark.sql.sources.StringEndsWith;
import org.apache.spark.sql.sources.StringStartsWith;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Filters in the planner's JSON. */
final class Filters {
  /** Null for what the planner does not know; such a filter stays with Spark alone. */
  static ObjectNode translate(Filter filter, StructType schema) {
    if (filter instanceof And) {
      And and = (And) filter;
      return pair("and", translate(and.left(), schema), translate(and.right(), schema));
    }
    if (filter instanceof Or) {
      Or or = (Or) filter;
      return pair("or", translate(or.left(), schema), translate(or.right(), schema));
    }
    if (filter instanceof Not) {
      ObjectNode child = translate(((Not) filter).child(), schema);
      if (child == null) {
        return null;
      }
      ObjectNode node = LanceRelation.JSON.createObjectNode().put("op", "not");
      node.set("child", child);
      return node;
    }
    String[] references = filter.references();
    if (references.length != 1) {
      return null;
    }
    String[] path = Expressions.column(references[0]).fieldNames();
    if (path.length != 1 || schema.getFieldIndex(path[0]).isEmpty()) {
      return null;
    }
    return leaf(filter, schema.apply(path[0]));
  }

  static ObjectNode pair(String op, ObjectNode left, ObjectNode right) {
    if (left == null || right == null) {
      return null;
    }
    ObjectNode node = LanceRelation.JSON.createObjectNode().put("op", op);
    node.set("left", left);
    node.set("right", right);
    return node;
  }

  static ObjectNode leaf(Filter filter, StructField field) {
    if (filter instanceof EqualTo) {
      return comparison("=", ((EqualTo) filter).value(), field);
    }
    if (filter instanceof EqualNullSafe) {
      return comparison("<=>", ((EqualNullSafe) filter).value(), field);
    }
    if (filter instanceof LessThan) {
      return comparison("<", ((LessThan) filter).value(), field);
    }
    if (filter instanceof LessThanOrEqual) {
      return comparison("<=", ((LessThanOrEqual) filter).value(), field);
    }
    if (filter instanceof GreaterThan) {
      return comparison(">", ((GreaterThan) filter).value(), field);
    }
    if (filter instanceof GreaterThanOrEqual) {
      return comparison(">=", ((GreaterThanOrEqual) filter).value(), field);
    }
    if (filter instanceof IsNull) {
      return about("isnull", field);
    }
    if (filter instanceof IsNotNull) {
      return about("isnotnull", field);
    }
    if (filter instanceof StringStartsWith) {
      return about("startswith", field).put("value", ((StringStartsWith) filter).value());
    }
    if (filter instanceof StringEndsWith) {
      return about("endswith", field).put("value", ((StringEndsWith) filter).value());
    }
    if (filter instanceof StringContains) {
      return about("contains", field).put("value", ((StringContains) filter).value());
    }
    if (filter instanceof In && isKnown(field.dataType())) {
      ObjectNode node = about("in", field).put("type", field.dataType().catalogString());
      ArrayNode values = node.putArray("values");
      for (Object value : ((In) filter).values()) {
        values.add(text(value, field.dataType()));
      }
      return node;
    }
    return null;
  }

  static ObjectNode about(String op, StructField field) {
    return LanceRelation.JSON.createObjectNode().put("op", op).put("column", field.name());
  }

  static ObjectNode comparison(String op, Object value, StructField field) {
    if (!isKnown(field.dataType())) {
      return null;
    }
    ObjectNode node = about(op, field).put("type", field.dataType().catalogString());
    return node.put("value", text(value, field.dataType()));
  }

  static boolean isKnown(DataType type) {
    return type instanceof DecimalType
        || Arrays.asList(
                new Object[] {
                  DataTypes.BooleanType, DataTypes.ByteType, DataTypes.ShortType,
                  DataTypes.IntegerType, DataTypes.LongType, DataTypes.FloatType,
                  DataTypes.DoubleType, DataTypes.StringType, DataTypes.BinaryType,
                  DataTypes.DateType, DataTypes.TimestampType, DataTypes.TimestampNTZType
                })
            .contains(type);
  }

  // Through Spark's internal form, which is the same whichever Java classes it hands out.
  static String text(Object value, DataType type) {
    if (value == null) {
      return null;
    }
    Object internal =
        CatalystTypeConverters$.MODULE$.createToCatalystConverter(type).apply(value);
    if (internal instanceof byte[]) {
      StringBuilder hex = new StringBuilder();
      for (byte each : (byte[]) internal) {
        hex.append(String.format("%02x", new Object[] {Byte.valueOf(each)}));
      }
      return hex.toString();
    }
    if (internal instanceof Decimal) {
      return ((Decimal) internal).toJavaBigDecimal().toPlainString();
    }
    return internal.toString();
  }
}
