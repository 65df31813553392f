package lancestat.relation;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.NearestByJoin;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/**
 * A join by NEAREST BY over vectors, from the analyzer to the planner.
 *
 * <p>It keeps both sides as its inputs, so that Spark's optimizer works on them as on those of any
 * operator. Each input has one column of vectors for the join alone, which the output leaves out:
 * columns that nothing else needs are pruned.
 */
@SuppressWarnings({"cast", "rawtypes", "unchecked"})
public final class NearestByPlan extends LogicalPlan {
  final LogicalPlan left;
  final LogicalPlan right;
  final NearestBySpec spec;
  final Expression leftVector;
  final Expression rightVector;

  // Spark copies a node by its public constructor, with what productElement lists.
  public NearestByPlan(
      LogicalPlan left,
      LogicalPlan right,
      NearestBySpec spec,
      Expression leftVector,
      Expression rightVector) {
    this.left = left;
    this.right = right;
    this.spec = spec;
    this.leftVector = leftVector;
    this.rightVector = rightVector;
  }

  /** The node in place of Spark's; `leftVector` and `rightVector` are over one side each. */
  static NearestByPlan of(
      NearestByJoin join, String function, Expression leftVector, Expression rightVector) {
    Alias ofLeft = alias(leftVector, "__left_vector");
    Alias ofRight = alias(rightVector, "__right_vector");
    return new NearestByPlan(
        new Project(Sequences.appended(join.left().output(), ofLeft), join.left()),
        new Project(Sequences.appended(join.right().output(), ofRight), join.right()),
        new NearestBySpec(join, function),
        ofLeft.toAttribute(),
        ofRight.toAttribute());
  }

  private static Alias alias(Expression vector, String name) {
    Seq nothing = Sequences.of(new ArrayList());
    return new Alias(
        vector, name, NamedExpression$.MODULE$.newExprId(), nothing, scala.Option.empty(), nothing);
  }

  /** Spark's own plan of the join. */
  LogicalPlan lowered() {
    return spec.lowered(left, right, (Attribute) leftVector, (Attribute) rightVector);
  }

  public Seq children() {
    List both = new ArrayList();
    both.add(left);
    both.add(right);
    return Sequences.of(both);
  }

  public LogicalPlan withNewChildrenInternal(IndexedSeq children) {
    return new NearestByPlan(
        (LogicalPlan) children.apply(0),
        (LogicalPlan) children.apply(1),
        spec,
        leftVector,
        rightVector);
  }

  public Seq output() {
    return NearestByNodes.output(
        left.output(),
        right.output(),
        (NamedExpression) leftVector,
        (NamedExpression) rightVector);
  }

  /** Every left row has as many neighbours as are asked for. */
  public Statistics stats() {
    Statistics given = left.stats();
    scala.math.BigInt most = scala.math.BigInt.apply(spec.count);
    scala.Option rows = scala.Option.empty();
    if (given.rowCount().isDefined()) {
      rows = scala.Option.apply(((scala.math.BigInt) given.rowCount().get()).$times(most));
    }
    StructType fields = NearestByNodes.fields(output());
    long rowBytes = Math.max(8L, (long) left.schema().defaultSize());
    scala.math.BigInt size = given.sizeInBytes().$times(most);
    size = size.$times(scala.math.BigInt.apply(fields.defaultSize() + 8L));
    size = size.$div(scala.math.BigInt.apply(rowBytes)).$plus(scala.math.BigInt.apply(1));
    return new Statistics(size, rows, given.attributeStats(), false);
  }

  public int productArity() {
    return 5;
  }

  public Object productElement(int index) {
    return new Object[] {left, right, spec, leftVector, rightVector}[index];
  }

  public boolean canEqual(Object other) {
    return other instanceof NearestByPlan;
  }

  public boolean equals(Object other) {
    return NearestByNodes.equal(this, other);
  }

  public int hashCode() {
    return super.hashCode();
  }

  public String nodeName() {
    return "LancestatNearestBy";
  }
}
