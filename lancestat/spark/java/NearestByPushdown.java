package lancestat.relation;

import java.util.ArrayDeque;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.LeftAnti$;
import org.apache.spark.sql.catalyst.plans.LeftSemi$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;

/**
 * Moves conditions on left rows below the join, as Spark does with its own plan of one: these are
 * filters, and semi and anti joins. A left row that is dropped is then not searched.
 *
 * <p>It is one of the optimizer's rules, which go on moving what it has moved.
 */
@SuppressWarnings({"cast", "rawtypes", "unchecked"})
final class NearestByPushdown extends Rule {
  public TreeNode apply(TreeNode plan) {
    return ((LogicalPlan) plan).transform(new Moved());
  }

  /** The plan with its condition moved; null where nothing can be. */
  static LogicalPlan moved(Object plan) {
    if (plan instanceof Filter && ((Filter) plan).child() instanceof NearestByPlan) {
      return filtered((Filter) plan, (NearestByPlan) ((Filter) plan).child());
    }
    if (plan instanceof Join && ((Join) plan).left() instanceof NearestByPlan) {
      return joined((Join) plan, (NearestByPlan) ((Join) plan).left());
    }
    return null;
  }

  private static LogicalPlan filtered(Filter filter, NearestByPlan node) {
    Expression below = null;
    Expression above = null;
    ArrayDeque waiting = new ArrayDeque();
    waiting.push(filter.condition());
    while (!waiting.isEmpty()) {
      Expression part = (Expression) waiting.pop();
      if (part instanceof And) {
        waiting.push(((And) part).right());
        waiting.push(((And) part).left());
      } else if (part.deterministic() && part.references().subsetOf(node.left.outputSet())) {
        below = below == null ? part : new And(below, part);
      } else {
        above = above == null ? part : new And(above, part);
      }
    }
    if (below == null) {
      return null;
    }
    LogicalPlan rest = over(node, new Filter(below, node.left));
    return above == null ? rest : new Filter(above, rest);
  }

  private static LogicalPlan joined(Join join, NearestByPlan node) {
    boolean isFilter =
        LeftSemi$.MODULE$.equals(join.joinType()) || LeftAnti$.MODULE$.equals(join.joinType());
    if (!isFilter || !isOfLeft(join, node)) {
      return null;
    }
    return over(
        node, new Join(node.left, join.right(), join.joinType(), join.condition(), join.hint()));
  }

  private static boolean isOfLeft(Join join, NearestByPlan node) {
    if (join.condition().isEmpty()) {
      return true;
    }
    Expression condition = (Expression) join.condition().get();
    AttributeSet known = node.left.outputSet().$plus$plus(join.right().outputSet());
    return condition.deterministic() && condition.references().subsetOf(known);
  }

  private static LogicalPlan over(NearestByPlan node, LogicalPlan left) {
    return new NearestByPlan(left, node.right, node.spec, node.leftVector, node.rightVector);
  }

  /** Of one node. */
  static final class Moved extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object plan) {
      return moved(plan) != null;
    }

    public Object applyOrElse(Object plan, scala.Function1 otherwise) {
      LogicalPlan moved = moved(plan);
      return moved == null ? otherwise.apply(plan) : moved;
    }
  }
}
