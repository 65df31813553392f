package lancestat.relation;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Add;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression$;
import org.apache.spark.sql.catalyst.expressions.Subtract;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;

/** Conditions of filters and joins in the estimator's JSON: the parts of a conjunction. */
@SuppressWarnings({"cast", "rawtypes", "unchecked"})
final class Conditions {
  private Conditions() {}

  /** Of an anti join, `NOT IN` has it lose rows also where it is not known if keys are equal. */
  static ArrayNode of(Expression condition, boolean isAnti) {
    ArrayNode parts = LanceRelation.JSON.createArrayNode();
    for (Object part : parts(condition)) {
      Object equality = isAnti && part instanceof Or ? ((Or) part).left() : null;
      boolean isNotIn =
          equality instanceof EqualTo
              && new IsNull((Expression) equality).semanticEquals((Expression) ((Or) part).right());
      parts.add(json((Expression) (isNotIn ? equality : part)));
    }
    return parts;
  }

  static List parts(Expression condition) {
    List parts = new ArrayList();
    ArrayDeque waiting = new ArrayDeque();
    waiting.push(condition);
    while (!waiting.isEmpty()) {
      Expression part = (Expression) waiting.pop();
      if (part instanceof And) {
        waiting.push(((And) part).right());
        waiting.push(((And) part).left());
      } else {
        parts.add(part);
      }
    }
    return parts;
  }

  /**
   * One condition: `columns` that it needs, and what it is: `filter` where it compares columns with
   * literals, `compares` where it compares two columns, or one with a value that is not yet known.
   */
  static ObjectNode json(Expression part) {
    ObjectNode node = LanceRelation.JSON.createObjectNode();
    node.set("columns", PlanQuestion.ids(part.references().iterator()));
    boolean isNegated = part instanceof Not && ((Not) part).child() instanceof BinaryComparison;
    Expression compared = isNegated ? ((Not) part).child() : part;
    if (compared instanceof BinaryComparison) {
      BinaryComparison comparison = (BinaryComparison) compared;
      Attribute left = attribute((Expression) comparison.left());
      Attribute right = attribute((Expression) comparison.right());
      if (left == null && right != null) {
        left = shifted((Expression) comparison.left());
        node.put("is_shifted", left != null);
      } else if (left != null && right == null) {
        right = shifted((Expression) comparison.right());
        node.put("is_shifted", right != null);
      }
      if (left != null && right != null) {
        node.put("compares", isNegated ? "not " + comparison.symbol() : comparison.symbol());
        node.put("left", PlanQuestion.id(left)).put("right", PlanQuestion.id(right));
        return node;
      }
      // One value that is found out when the query runs, as that of a subquery.
      boolean isRight = left != null && right == null && isOneValue((Expression) comparison.right());
      if (isRight || (right != null && isOneValue((Expression) comparison.left()))) {
        String symbol = isRight ? comparison.symbol() : swapped(comparison.symbol());
        node.put("compares", isNegated ? "not " + symbol : symbol);
        return node.put("left", PlanQuestion.id(isRight ? left : right));
      }
    }
    ObjectNode filter = Filters.translate(numbered(part), schema(part));
    if (filter != null) {
      node.set("filter", filter);
    } else {
      node.put("rejects_nulls", rejectsNulls(part));
    }
    return node;
  }

  /** Whether no row passes that has null in all columns of a condition. */
  private static boolean rejectsNulls(Expression part) {
    if (!ScanSample.evaluates(part)) {
      return false;
    }
    Map nulls = new HashMap();
    Iterator columns = part.references().iterator();
    while (columns.hasNext()) {
      Attribute column = (Attribute) columns.next();
      nulls.put(column.exprId(), Literal$.MODULE$.create(null, column.dataType()));
    }
    try {
      return !Boolean.TRUE.equals(replaced(part, nulls).eval(null));
    } catch (Throwable error) {
      Failure.requireSurvivable(error);
      return false;
    }
  }

  /** The column to which a side adds a constant, as many values of which there are. */
  private static Attribute shifted(Expression side) {
    if (!(side instanceof Add || side instanceof Subtract) || side.references().size() != 1) {
      return null;
    }
    Expression first = (Expression) side.children().apply(0);
    Expression second = (Expression) side.children().apply(1);
    return first.foldable() ? attribute(second) : second.foldable() ? attribute(first) : null;
  }

  /** The comparison that holds between two sides in the other order. */
  private static String swapped(String symbol) {
    if (symbol.equals("<=>")) {
      return symbol;
    }
    return symbol.startsWith("<") ? symbol.replace('<', '>') : symbol.replace('>', '<');
  }

  private static boolean isOneValue(Expression side) {
    return side.references().isEmpty() && SubqueryExpression$.MODULE$.hasSubquery(side);
  }

  private static Attribute attribute(Expression side) {
    Expression inner = side instanceof Cast ? (Expression) ((Cast) side).child() : side;
    return inner instanceof Attribute ? (Attribute) inner : null;
  }

  /** The condition with the numbers of columns for their names: names may be there twice. */
  private static Expression numbered(Expression part) {
    Map named = new HashMap();
    Iterator columns = part.references().iterator();
    while (columns.hasNext()) {
      Attribute column = (Attribute) columns.next();
      named.put(column.exprId(), column.withName(PlanQuestion.id(column)));
    }
    return replaced(part, named);
  }

  /** An expression with others in place of its columns, by their numbers. */
  static Expression replaced(Expression part, Map columns) {
    if (part instanceof Attribute) {
      return (Expression) columns.get(((Attribute) part).exprId());
    }
    List children = new ArrayList();
    Iterator old = part.children().iterator();
    while (old.hasNext()) {
      children.add(replaced((Expression) old.next(), columns));
    }
    return children.isEmpty()
        ? part
        : (Expression) part.withNewChildren(Sequences.of(children));
  }

  private static StructType schema(Expression part) {
    StructType schema = new StructType();
    Iterator columns = part.references().iterator();
    while (columns.hasNext()) {
      Attribute column = (Attribute) columns.next();
      schema = schema.add(PlanQuestion.id(column), column.dataType());
    }
    return schema;
  }
}
