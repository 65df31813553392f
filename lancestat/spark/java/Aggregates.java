package lancestat.relation;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** Aggregates in the planner's JSON, and its answers as Spark's values. */
@SuppressWarnings({"cast", "rawtypes", "unchecked"})
final class Aggregates {

  /** Null unless all are counts, minima and maxima of whole columns, over all rows together. */
  static ArrayNode translate(Aggregation aggregation, StructType schema) {
    AggregateFunc[] functions = aggregation.aggregateExpressions();
    if (aggregation.groupByExpressions().length > 0 || functions.length == 0) {
      return null;
    }
    ArrayNode translated = LanceRelation.JSON.createArrayNode();
    for (int i = 0; i < functions.length; i++) {
      ObjectNode node = translated.addObject();
      if (functions[i] instanceof CountStar) {
        node.put("function", "count").putNull("column");
        continue;
      }
      String function = function(functions[i]);
      String column = function == null ? null : column(functions[i].children()[0], schema);
      if (column == null) {
        return null;
      }
      node.put("function", function).put("column", column);
    }
    return translated;
  }

  static String function(AggregateFunc function) {
    if (function instanceof Count) {
      return ((Count) function).isDistinct() ? null : "count";
    }
    return function instanceof Min ? "min" : function instanceof Max ? "max" : null;
  }

  static String column(Expression expression, StructType schema) {
    if (!(expression instanceof NamedReference)) {
      return null;
    }
    String[] names = ((NamedReference) expression).fieldNames();
    return names.length == 1 && schema.getFieldIndex(names[0]).isDefined() ? names[0] : null;
  }

  /** The columns of the answers: a count is a long, a minimum of the type of its column. */
  static StructType schema(JsonNode translated, StructType table) {
    List fields = new ArrayList();
    for (JsonNode aggregate : translated) {
      boolean isCount = aggregate.get("function").asText().equals("count");
      String column = aggregate.hasNonNull("column") ? aggregate.get("column").asText() : "*";
      DataType type = isCount ? DataTypes.LongType : table.apply(column).dataType();
      String name = aggregate.get("function").asText() + "(" + column + ")";
      fields.add(DataTypes.createStructField(name, type, true));
    }
    return new StructType((StructField[]) fields.toArray(new StructField[0]));
  }

  static boolean countsRows(Aggregation aggregation) {
    AggregateFunc[] functions = aggregation.aggregateExpressions();
    for (int i = 0; i < functions.length; i++) {
      if (functions[i] instanceof CountStar) {
        return true;
      }
    }
    return false;
  }

  /**
   * The rows that Spark aggregates to the answers.
   *
   * <p>It hands `count(distinct 1)` over as `count(*)`, and a complete answer to that would be wrong.
   * Where an answer is not complete, it sums up the counts of rows, and for `count(distinct 1)` the
   * distinct ones alone. So there are three rows then: the sum of their counts is the count of rows,
   * and the sum of the distinct ones is 1.
   */
  static Object[][] rows(Aggregation aggregation, JsonNode answers, StructType schema) {
    AggregateFunc[] functions = aggregation.aggregateExpressions();
    Object[][] rows = new Object[countsRows(aggregation) ? 3 : 1][functions.length];
    for (int i = 0; i < functions.length; i++) {
      JsonNode answer = (JsonNode) answers.get(i);
      for (int j = 0; j < rows.length; j++) {
        if (answer.isNull()) {
          rows[j][i] = null;
        } else if (functions[i] instanceof CountStar) {
          rows[j][i] = Long.valueOf(share(answer.asLong(), j));
        } else if (functions[i] instanceof Count) {
          rows[j][i] = Long.valueOf(j == 0 ? answer.asLong() : 0L);
        } else {
          rows[j][i] = value(answer.asText(), schema.apply(i).dataType());
        }
      }
    }
    return rows;
  }

  static long share(long count, int row) {
    return count == 0 ? 0 : row < 2 ? count - 1 : 2 - count;
  }

  /** A value in Spark's internal form. */
  static Object value(String text, DataType type) {
    if (type instanceof DecimalType) {
      DecimalType decimal = (DecimalType) type;
      BigDecimal value = new BigDecimal(new BigInteger(text), decimal.scale());
      return Decimal.apply(value, decimal.precision(), decimal.scale());
    }
    if (type.equals(DataTypes.StringType)) {
      return UTF8String.fromBytes(bytes(text));
    }
    if (type.equals(DataTypes.BinaryType)) {
      return bytes(text);
    }
    if (type.equals(DataTypes.FloatType)) {
      return Float.valueOf((float) Double.parseDouble(text));
    }
    if (type.equals(DataTypes.DoubleType)) {
      return Double.valueOf(text);
    }
    long number = Long.parseLong(text);
    if (type.equals(DataTypes.BooleanType)) {
      return Boolean.valueOf(number != 0);
    }
    if (type.equals(DataTypes.ByteType)) {
      return Byte.valueOf((byte) number);
    }
    if (type.equals(DataTypes.ShortType)) {
      return Short.valueOf((short) number);
    }
    if (type.equals(DataTypes.IntegerType) || type.equals(DataTypes.DateType)) {
      return Integer.valueOf((int) number);
    }
    if (type.equals(DataTypes.LongType)
        || type.equals(DataTypes.TimestampType)
        || type.equals(DataTypes.TimestampNTZType)) {
      return Long.valueOf(number);
    }
    if (Filters.isTime(type)) {
      // Spark counts nanoseconds.
      return Long.valueOf(number * 1000L);
    }
    throw new IllegalArgumentException("no aggregate of " + type.catalogString() + " is answered");
  }

  static byte[] bytes(String hex) {
    byte[] bytes = new byte[hex.length() / 2];
    for (int i = 0; i < bytes.length; i++) {
      bytes[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
    }
    return bytes;
  }
}
