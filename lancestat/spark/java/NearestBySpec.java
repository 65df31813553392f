package lancestat.relation;

import java.io.Serializable;
import java.util.Objects;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable;
import org.apache.spark.sql.catalyst.expressions.VectorCosineSimilarity;
import org.apache.spark.sql.catalyst.expressions.VectorInnerProduct;
import org.apache.spark.sql.catalyst.expressions.VectorL2Distance;
import org.apache.spark.sql.catalyst.optimizer.RewriteNearestByJoin$;
import org.apache.spark.sql.catalyst.plans.JoinType;
import org.apache.spark.sql.catalyst.plans.LeftOuter$;
import org.apache.spark.sql.catalyst.plans.NearestByDirection;
import org.apache.spark.sql.catalyst.plans.NearestByDistance$;
import org.apache.spark.sql.catalyst.plans.NearestBySimilarity$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.NearestByJoin;
import org.apache.spark.sql.catalyst.plans.logical.Project;

/** What a join by NEAREST BY asks for, whatever its sides are. */
@SuppressWarnings({"cast", "rawtypes", "serial", "unchecked"})
final class NearestBySpec implements Serializable {
  private static final long serialVersionUID = 1L;
  static final String L2_DISTANCE = "vector_l2_distance";
  static final String INNER_PRODUCT = "vector_inner_product";
  static final String COSINE_SIMILARITY = "vector_cosine_similarity";
  final String function;
  final int count;
  final JoinType joinType;
  final boolean isApproximate;

  NearestBySpec(NearestByJoin join, String function) {
    this.function = function;
    this.count = join.numResults();
    this.joinType = join.joinType();
    this.isApproximate = join.approx();
  }

  boolean isOuter() {
    return LeftOuter$.MODULE$.equals(joinType);
  }

  static boolean isDistance(String function) {
    return function.equals(L2_DISTANCE);
  }

  /** Spark's own plan of the join of two sides, by columns of vectors that the result leaves out. */
  LogicalPlan lowered(
      LogicalPlan left, LogicalPlan right, Attribute leftVector, Attribute rightVector) {
    NearestByDirection direction =
        isDistance(function)
            ? (NearestByDirection) NearestByDistance$.MODULE$
            : (NearestByDirection) NearestBySimilarity$.MODULE$;
    // The optimizer has replaced what is replaceable before this plan is made.
    NearestByJoin join =
        new NearestByJoin(
            left,
            right,
            joinType,
            isApproximate,
            count,
            ranking(leftVector, rightVector).replacement(),
            direction);
    return new Project(
        NearestByNodes.output(left.output(), right.output(), leftVector, rightVector),
        RewriteNearestByJoin$.MODULE$.apply((LogicalPlan) join));
  }

  private RuntimeReplaceable ranking(Attribute left, Attribute right) {
    if (function.equals(L2_DISTANCE)) {
      return new VectorL2Distance(left, right);
    }
    if (function.equals(INNER_PRODUCT)) {
      return new VectorInnerProduct(left, right);
    }
    return new VectorCosineSimilarity(left, right);
  }

  public boolean equals(Object other) {
    if (!(other instanceof NearestBySpec)) {
      return false;
    }
    NearestBySpec that = (NearestBySpec) other;
    return function.equals(that.function)
        && count == that.count
        && joinType.equals(that.joinType)
        && isApproximate == that.isApproximate;
  }

  public int hashCode() {
    return Objects.hash(
        new Object[] {function, Integer.valueOf(count), joinType, Boolean.valueOf(isApproximate)});
  }

  public String toString() {
    return (isOuter() ? "left outer, " : "inner, ")
        + count
        + " by "
        + function
        + (isApproximate ? ", approximate" : ", exact");
  }
}
