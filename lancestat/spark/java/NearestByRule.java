package lancestat.relation;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression$;
import org.apache.spark.sql.catalyst.expressions.VectorCosineSimilarity;
import org.apache.spark.sql.catalyst.expressions.VectorInnerProduct;
import org.apache.spark.sql.catalyst.expressions.VectorL2Distance;
import org.apache.spark.sql.catalyst.plans.NearestByDistance$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.NearestByJoin;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.trees.TreePattern$;
import org.apache.spark.sql.internal.SQLConf;

/**
 * Puts lancestat's node in place of Spark's where a query ranks by the distance of vectors.
 *
 * <p>It is a rule of the analyzer: the optimizer lowers Spark's node before any rule of others.
 */
@SuppressWarnings({"cast", "rawtypes", "unchecked"})
final class NearestByRule extends Rule {
  static final String SETTING = "spark.lancestat.nearestBy.enabled";

  public TreeNode apply(TreeNode plan) {
    return ((LogicalPlan) plan).resolveOperatorsUp(new Replacement());
  }

  /** Why a join stays Spark's, null where it does not. */
  static String objection(NearestByJoin join) {
    if (!"true".equalsIgnoreCase(SQLConf.get().getConfString(SETTING, "true"))) {
      return SETTING + " is false";
    }
    if (!NearestByService.isConnected()) {
      return "no Python process with lancestat is connected; lancestat.register connects one";
    }
    if (join.isStreaming()) {
      return "a side is a stream";
    }
    if (join.containsPattern(TreePattern$.MODULE$.OUTER_REFERENCE())) {
      return "a side depends on the query around it";
    }
    Expression ranking = join.rankingExpression();
    String function = function(ranking);
    if (function == null) {
      return "it ranks by none of vector_l2_distance, vector_cosine_similarity and"
          + " vector_inner_product";
    }
    boolean isDistance = NearestByDistance$.MODULE$.equals(join.direction());
    if (isDistance != NearestBySpec.isDistance(function)) {
      return "it asks for the rows that are farthest by " + function;
    }
    if (!ranking.deterministic() || SubqueryExpression$.MODULE$.hasSubquery(ranking)) {
      return "a vector is not deterministic, or is that of a subquery";
    }
    if (!isSplit(join, argument(ranking, 0), argument(ranking, 1))
        && !isSplit(join, argument(ranking, 1), argument(ranking, 0))) {
      return function + " does not compare a vector of one side with a vector of the other";
    }
    return null;
  }

  private static boolean isSplit(NearestByJoin join, Expression left, Expression right) {
    return left.references().subsetOf(join.left().outputSet())
        && right.references().subsetOf(join.right().outputSet());
  }

  private static Expression argument(Expression function, int index) {
    return (Expression) function.children().apply(index);
  }

  private static String function(Expression ranking) {
    if (ranking instanceof VectorL2Distance) {
      return NearestBySpec.L2_DISTANCE;
    }
    if (ranking instanceof VectorInnerProduct) {
      return NearestBySpec.INNER_PRODUCT;
    }
    return ranking instanceof VectorCosineSimilarity ? NearestBySpec.COSINE_SIMILARITY : null;
  }

  static LogicalPlan replaced(NearestByJoin join) {
    Expression ranking = join.rankingExpression();
    boolean isSwapped = !isSplit(join, argument(ranking, 0), argument(ranking, 1));
    return NearestByPlan.of(
        join,
        function(ranking),
        argument(ranking, isSwapped ? 1 : 0),
        argument(ranking, isSwapped ? 0 : 1));
  }

  /** Of one node. */
  static final class Replacement extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object plan) {
      return plan instanceof NearestByJoin
          && ((NearestByJoin) plan).resolved()
          && objection((NearestByJoin) plan) == null;
    }

    public Object applyOrElse(Object plan, scala.Function1 otherwise) {
      return isDefinedAt(plan) ? replaced((NearestByJoin) plan) : otherwise.apply(plan);
    }
  }
}
