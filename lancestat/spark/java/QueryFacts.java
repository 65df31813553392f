package lancestat.relation;

import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry$;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.analysis.UnresolvedInlineTable;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableValuedFunction;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Average;
import org.apache.spark.sql.catalyst.expressions.aggregate.Sum;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.UnresolvedWith;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.catalyst.trees.Origin;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.DataType;

/**
 * What a query is made of, each kind of thing once: lines of tab-separated words, the first of which
 * says what the others are about. Python decides what they mean.
 */
// Janino infers no type arguments, so types are raw and some casts are javac's to call redundant.
@SuppressWarnings({"cast", "rawtypes", "unchecked"})
final class QueryFacts {
  private final Set facts = new LinkedHashSet();
  private final Map seen = new IdentityHashMap();

  /** Of a plan as the parser made it: whatever is anywhere in it, however deep. */
  static List parsed(LogicalPlan plan) {
    QueryFacts query = new QueryFacts();
    query.parsedPart(plan, false);
    return new ArrayList(query.facts);
  }

  /** Of a plan as the analyzer made it. */
  static List analyzed(LogicalPlan plan) {
    QueryFacts query = new QueryFacts();
    query.analyzedPlan(plan);
    return new ArrayList(query.facts);
  }

  /** Nodes hold others as arguments, in options, sequences, maps and tuples. */
  private void parsedPart(Object part, boolean isEvaluatedEarly) {
    boolean isEarly = isEvaluatedEarly;
    if (part instanceof TreeNode) {
      // A node's children are among its arguments, too.
      if (seen.put(part, part) != null) {
        return;
      }
      parsedNode((TreeNode) part, isEvaluatedEarly);
      isEarly =
          isEvaluatedEarly
              || part instanceof UnresolvedInlineTable
              || part instanceof UnresolvedTableValuedFunction;
      parsedParts(((TreeNode) part).children().iterator(), isEarly);
    }
    if (part instanceof scala.collection.Iterable) {
      parsedParts(((scala.collection.Iterable) part).iterator(), isEarly);
    } else if (part instanceof scala.Product) {
      parsedParts(((scala.Product) part).productIterator(), isEarly);
    }
  }

  private void parsedParts(scala.collection.Iterator parts, boolean isEvaluatedEarly) {
    while (parts.hasNext()) {
      parsedPart(parts.next(), isEvaluatedEarly);
    }
  }

  private void parsedNode(TreeNode node, boolean isEvaluatedEarly) {
    String name = node.getClass().getName();
    if (node instanceof LogicalPlan) {
      fact("plan", name, "");
    } else {
      fact(isEvaluatedEarly ? "early expression" : "expression", name, "");
    }
    if (node instanceof UnresolvedFunction) {
      String called = words(((UnresolvedFunction) node).nameParts());
      fact(isEvaluatedEarly ? "early function" : "function", called, "");
    } else if (node instanceof UnresolvedTableValuedFunction) {
      fact("table function", words(((UnresolvedTableValuedFunction) node).name()), "");
    } else if (node instanceof UnresolvedRelation) {
      fact("relation", words(((UnresolvedRelation) node).multipartIdentifier()), "");
      if (((UnresolvedRelation) node).isStreaming()) {
        fact("stream", "", "");
      }
    } else if (node instanceof UnresolvedWith) {
      scala.collection.Iterator defined = ((UnresolvedWith) node).cteRelations().iterator();
      while (defined.hasNext()) {
        fact("cte", (String) ((scala.Product) defined.next()).productElement(0), "");
      }
    } else if (node instanceof Literal) {
      String type = ((Literal) node).dataType().typeName();
      fact("literal", type, type.equals("date") ? source(node.origin()) : "");
    }
  }

  private void analyzedPlan(LogicalPlan plan) {
    fact("plan", plan.getClass().getName(), "");
    if (plan instanceof View) {
      fact("view", ((View) plan).isTempView() ? "temporary" : "persistent", "");
    } else if (plan instanceof DataSourceV2Relation) {
      fact("table", ((DataSourceV2Relation) plan).table().getClass().getName(), "");
    }
    scala.collection.Iterator expressions = plan.expressions().iterator();
    while (expressions.hasNext()) {
      analyzedExpression((Expression) expressions.next());
    }
    scala.collection.Iterator children = plan.children().iterator();
    while (children.hasNext()) {
      analyzedPlan((LogicalPlan) children.next());
    }
  }

  private void analyzedExpression(Expression expression) {
    String name = expression.getClass().getName();
    fact("expression", name, function(expression));
    if (!expression.deterministic() && areDeterministic(expression.children().iterator())) {
      fact("nondeterministic", name, function(expression));
    }
    if (expression instanceof Literal) {
      fact("literal", ((Literal) expression).dataType().typeName(), "");
    } else if (expression instanceof Cast) {
      cast((Cast) expression);
    } else if (expression instanceof Sum || expression instanceof Average) {
      Expression summed = (Expression) expression.children().head();
      fact("sum", summed.dataType().typeName(), function(expression));
    } else if (expression instanceof SubqueryExpression) {
      analyzedPlan((LogicalPlan) ((SubqueryExpression) expression).plan());
    }
    scala.collection.Iterator children = expression.children().iterator();
    while (children.hasNext()) {
      analyzedExpression((Expression) children.next());
    }
  }

  private static boolean areDeterministic(scala.collection.Iterator expressions) {
    while (expressions.hasNext()) {
      if (!((Expression) expressions.next()).deterministic()) {
        return false;
      }
    }
    return true;
  }

  /** What SQL calls an expression, empty where Spark has no function of its own of that name. */
  private static String function(Expression expression) {
    String name = expression.prettyName();
    FunctionIdentifier builtIn = new FunctionIdentifier(name);
    return FunctionRegistry$.MODULE$.builtin().functionExists(builtIn) ? name : "";
  }

  /** Casts that follow the session's time zone, or give text like 'today' a meaning. */
  private void cast(Cast cast) {
    DataType from = cast.child().dataType();
    DataType to = cast.dataType();
    if (Cast$.MODULE$.needsTimeZone(from, to)) {
      fact("zoned cast", from.typeName(), to.typeName());
    } else if (mentions(from, "string") && (mentions(to, "date") || mentions(to, "time"))) {
      boolean isDate = cast.child() instanceof Literal && to.typeName().equals("date");
      fact("text cast", to.typeName(), isDate ? String.valueOf(cast.child()) : "");
    }
  }

  private static boolean mentions(DataType type, String word) {
    return type.catalogString().contains(word);
  }

  private static String source(Origin origin) {
    if (origin.sqlText().isEmpty() || origin.startIndex().isEmpty()) {
      return "";
    }
    String text = (String) origin.sqlText().get();
    int start = ((Number) origin.startIndex().get()).intValue();
    int stop = ((Number) origin.stopIndex().get()).intValue() + 1;
    return start < stop && stop <= text.length() ? text.substring(start, stop) : "";
  }

  private static String words(scala.collection.Seq parts) {
    ArrayNode array = LanceRelation.JSON.createArrayNode();
    scala.collection.Iterator texts = parts.iterator();
    while (texts.hasNext()) {
      array.add((String) texts.next());
    }
    return array.toString();
  }

  private void fact(String kind, String about, String detail) {
    facts.add(kind + "\t" + about + "\t" + detail);
  }
}
