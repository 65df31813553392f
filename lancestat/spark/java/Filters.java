package lancestat.relation;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import org.apache.spark.sql.catalyst.CatalystTypeConverters$;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.BinaryOperator;
import org.apache.spark.sql.catalyst.expressions.Contains;
import org.apache.spark.sql.catalyst.expressions.EndsWith;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.StartsWith;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Filters in the planner's JSON.
 *
 * <p>They are read from Spark's own expressions, whose literals are exact: days, microseconds and
 * bytes. The filters of Spark's public interface hold Java objects instead, and no `java.sql.Date`
 * is a day that the calendar of its time zone leaves out.
 */
@SuppressWarnings({"cast", "rawtypes", "unchecked"})
final class Filters {
  // By the operator; the second of each is the operator with its sides exchanged.
  static final String[][] COMPARISONS =
      new String[][] {
        {"=", "="}, {"<=>", "<=>"}, {"<", ">"}, {"<=", ">="}, {">", "<"}, {">=", "<="}
      };

  // Of connectives; a chain of AND or of OR is one level. As `query.predicates.filter.DEEPEST`.
  static final int DEEPEST = 30;
  // Spark's own code, which makes a text of an expression, recurses.
  static final int DEEPEST_SHOWN = 200;

  /** Null for what the planner does not know; such a filter stays with Spark alone. */
  static ObjectNode translate(Expression filter, StructType schema) {
    return translate(filter, schema, 0);
  }

  static ObjectNode translate(Expression filter, StructType schema, int depth) {
    if (depth > DEEPEST) {
      return null;
    }
    if (filter instanceof And || filter instanceof Or) {
      return chain(filter, schema, depth);
    }
    if (filter instanceof Not) {
      ObjectNode child = translate(((Not) filter).child(), schema, depth + 1);
      if (child == null) {
        return null;
      }
      ObjectNode node = LanceRelation.JSON.createObjectNode().put("op", "not");
      node.set("child", child);
      return node;
    }
    if (filter instanceof BinaryComparison) {
      return comparison((BinaryComparison) filter, schema);
    }
    if (filter instanceof In) {
      In in = (In) filter;
      return in(in.value(), in.list().iterator(), schema);
    }
    if (filter instanceof InSet) {
      InSet in = (InSet) filter;
      return in(in.child(), in.hset().iterator(), schema);
    }
    if (filter instanceof IsNull) {
      return about("isnull", ((IsNull) filter).child(), schema);
    }
    if (filter instanceof IsNotNull) {
      return about("isnotnull", ((IsNotNull) filter).child(), schema);
    }
    if (filter instanceof StartsWith) {
      StartsWith match = (StartsWith) filter;
      return textMatch("startswith", match.left(), match.right(), schema);
    }
    if (filter instanceof EndsWith) {
      EndsWith match = (EndsWith) filter;
      return textMatch("endswith", match.left(), match.right(), schema);
    }
    if (filter instanceof Contains) {
      Contains match = (Contains) filter;
      return textMatch("contains", match.left(), match.right(), schema);
    }
    if (filter instanceof AttributeReference && filter.dataType().equals(DataTypes.BooleanType)) {
      ObjectNode node = typed("=", filter, schema);
      return node == null ? null : node.put("value", "true");
    }
    return null;
  }

  // Spark nests the operands to one side.
  static ObjectNode chain(Expression filter, StructType schema, int depth) {
    boolean isAnd = filter instanceof And;
    ObjectNode node = LanceRelation.JSON.createObjectNode().put("op", isAnd ? "and" : "or");
    ArrayNode operands = node.putArray("operands");
    ArrayDeque waiting = new ArrayDeque();
    waiting.push(filter);
    while (!waiting.isEmpty()) {
      Expression part = (Expression) waiting.pop();
      if (isAnd ? part instanceof And : part instanceof Or) {
        waiting.push(((BinaryOperator) part).right());
        waiting.push(((BinaryOperator) part).left());
        continue;
      }
      ObjectNode operand = translate(part, schema, depth + 1);
      if (operand == null) {
        return null;
      }
      operands.add(operand);
    }
    return node;
  }

  static ObjectNode comparison(BinaryComparison filter, StructType schema) {
    // Janino needs the casts.
    Expression left = (Expression) filter.left();
    Expression right = (Expression) filter.right();
    boolean isFlipped = left instanceof Literal;
    for (int i = 0; i < COMPARISONS.length; i++) {
      if (filter.symbol().equals(COMPARISONS[i][0])) {
        String op = COMPARISONS[i][isFlipped ? 1 : 0];
        return against(op, isFlipped ? right : left, isFlipped ? left : right, schema);
      }
    }
    return null;
  }

  static ObjectNode against(String op, Expression column, Expression given, StructType schema) {
    ObjectNode node = typed(op, column, schema);
    if (node == null || !(given instanceof Literal)) {
      return null;
    }
    Literal literal = (Literal) given;
    if (!isExact(literal.value(), literal.dataType(), column.dataType())) {
      return null;
    }
    return node.put("value", text(literal.value()));
  }

  /** Members are literals, or values of the column's type. */
  static ObjectNode in(Expression column, scala.collection.Iterator members, StructType schema) {
    ObjectNode node = typed("in", column, schema);
    if (node == null) {
      return null;
    }
    ArrayNode values = node.putArray("values");
    while (members.hasNext()) {
      Object member = members.next();
      DataType type = column.dataType();
      if (member instanceof Literal) {
        type = ((Literal) member).dataType();
        member = ((Literal) member).value();
      }
      if (member instanceof Expression || !isExact(member, type, column.dataType())) {
        return null;
      }
      values.add(text(member));
    }
    return node;
  }

  static ObjectNode textMatch(String op, Expression column, Expression text, StructType schema) {
    if (!column.dataType().equals(DataTypes.StringType)) {
      return null;
    }
    ObjectNode node = against(op, column, text, schema);
    // A null is no text to look for.
    if (node == null || node.get("value").isNull()) {
      return null;
    }
    node.remove("type");
    return node;
  }

  static ObjectNode about(String op, Expression column, StructType schema) {
    if (!(column instanceof AttributeReference)) {
      return null;
    }
    String name = ((AttributeReference) column).name();
    if (schema.getFieldIndex(name).isEmpty()) {
      return null;
    }
    return LanceRelation.JSON.createObjectNode().put("op", op).put("column", name);
  }

  static ObjectNode typed(String op, Expression column, StructType schema) {
    ObjectNode node = about(op, column, schema);
    if (node == null || !isKnown(column.dataType())) {
      return null;
    }
    return node.put("type", column.dataType().catalogString());
  }

  static boolean isKnown(DataType type) {
    return type instanceof DecimalType
        || isTime(type)
        || Arrays.asList(
                new Object[] {
                  DataTypes.BooleanType, DataTypes.ByteType, DataTypes.ShortType,
                  DataTypes.IntegerType, DataTypes.LongType, DataTypes.FloatType,
                  DataTypes.DoubleType, DataTypes.StringType, DataTypes.BinaryType,
                  DataTypes.DateType, DataTypes.TimestampType, DataTypes.TimestampNTZType
                })
            .contains(type);
  }

  /** Whether it is a time of day, of which Spark before 4.1 has no class. */
  static boolean isTime(DataType type) {
    return type.catalogString().startsWith("time(");
  }

  /** Whether a value is of the column's type and has a text that is it exactly. */
  static boolean isExact(Object value, DataType type, DataType column) {
    if (value == null) {
      return true;
    }
    // Bytes that are no UTF-8 are lost in a Java string.
    return type.equals(column)
        && (!(value instanceof UTF8String)
            || value.equals(UTF8String.fromString(value.toString())));
  }

  /** As Spark shows the filters of its own sources, where that is what the filter says. */
  static String shown(Expression filter) {
    if (levels(filter) > DEEPEST_SHOWN) {
      return text(filter);
    }
    scala.Option translation =
        isLosslessInJava(filter)
            ? DataSourceStrategy$.MODULE$.translateFilter(filter, true)
            : scala.Option.empty();
    return translation.isDefined() ? translation.get().toString() : filter.sql();
  }

  /** A filter in Spark's SQL, unless it is nested too deeply for Spark to write it. */
  static String text(Expression filter) {
    int levels = levels(filter);
    return levels > DEEPEST_SHOWN ? "a condition of " + levels + " levels" : filter.sql();
  }

  static int levels(Expression filter) {
    int levels = 0;
    List level = new ArrayList();
    level.add(filter);
    while (!level.isEmpty()) {
      levels++;
      List below = new ArrayList();
      for (Object expression : level) {
        scala.collection.Iterator children = ((Expression) expression).children().iterator();
        while (children.hasNext()) {
          below.add(children.next());
        }
      }
      level = below;
    }
    return levels;
  }

  /** Whether every literal survives the Java objects of Spark's public filters. */
  static boolean isLosslessInJava(Expression filter) {
    for (Object literal : literals(filter)) {
      if (!isLosslessInJava(((Literal) literal).value(), ((Literal) literal).dataType())) {
        return false;
      }
    }
    return true;
  }

  /**
   * Whether every float among the literals means the same elsewhere. NaN and the infinities have no
   * literals in SQL, and of zero there are two, which are equal in Spark and ordered in Lance.
   */
  static boolean hasCommonFloats(Expression filter) {
    for (Object literal : literals(filter)) {
      Object value = ((Literal) literal).value();
      if (value instanceof Double || value instanceof Float) {
        double number = ((Number) value).doubleValue();
        if (number == 0 || Double.isNaN(number) || Double.isInfinite(number)) {
          return false;
        }
      }
    }
    return true;
  }

  /** The literals of a filter, and the members of its sets. */
  static List literals(Expression filter) {
    List literals = new ArrayList();
    ArrayDeque waiting = new ArrayDeque();
    waiting.push(filter);
    while (!waiting.isEmpty()) {
      Expression part = (Expression) waiting.pop();
      if (part instanceof Literal) {
        literals.add(part);
      }
      if (part instanceof InSet) {
        scala.collection.Iterator members = ((InSet) part).hset().iterator();
        while (members.hasNext()) {
          literals.add(new Literal(members.next(), ((InSet) part).child().dataType()));
        }
      }
      scala.collection.Iterator children = part.children().iterator();
      while (children.hasNext()) {
        waiting.push(children.next());
      }
    }
    return literals;
  }

  static boolean isLosslessInJava(Object value, DataType type) {
    CatalystTypeConverters$ converters = CatalystTypeConverters$.MODULE$;
    try {
      Object java = converters.convertToScala(value, type);
      return Objects.deepEquals(value, converters.createToCatalystConverter(type).apply(java));
    } catch (ArithmeticException overflow) {
      // The first instants of 64 bits.
      return false;
    }
  }

  /** A value of Spark's internal form; null for null. */
  static String text(Object value) {
    if (value == null) {
      return null;
    }
    if (value instanceof byte[]) {
      StringBuilder hex = new StringBuilder();
      for (byte each : (byte[]) value) {
        hex.append(String.format("%02x", new Object[] {Byte.valueOf(each)}));
      }
      return hex.toString();
    }
    if (value instanceof Decimal) {
      return ((Decimal) value).toJavaBigDecimal().toPlainString();
    }
    if (value instanceof Float) {
      return Double.toString(((Float) value).doubleValue());
    }
    return value.toString();
  }
}
