package lancestat.relation;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/** Runs the search once the query runs: the sides go to Python, and its result comes back. */
@SuppressWarnings({"cast", "rawtypes", "unchecked", "serial"})
public final class NearestByExec extends SparkPlan {
  private static final long serialVersionUID = 1L;
  final SparkPlan left;
  final SparkPlan right;
  final NearestBySpec spec;
  final Expression leftVector;
  final Expression rightVector;
  final String decision;

  public NearestByExec(
      SparkPlan left,
      SparkPlan right,
      NearestBySpec spec,
      Expression leftVector,
      Expression rightVector,
      String decision) {
    this.left = left;
    this.right = right;
    this.spec = spec;
    this.leftVector = leftVector;
    this.rightVector = rightVector;
    this.decision = decision;
  }

  public String join() {
    return spec.toString();
  }

  public String decision() {
    return decision;
  }

  public Seq children() {
    List both = new ArrayList();
    both.add(left);
    both.add(right);
    return Sequences.of(both);
  }

  public SparkPlan withNewChildrenInternal(IndexedSeq children) {
    return new NearestByExec(
        (SparkPlan) children.apply(0),
        (SparkPlan) children.apply(1),
        spec,
        leftVector,
        rightVector,
        decision);
  }

  public Seq output() {
    return NearestByNodes.output(
        left.output(),
        right.output(),
        (NamedExpression) leftVector,
        (NamedExpression) rightVector);
  }

  public RDD doExecute() {
    return NearestByService.search(this);
  }

  public int productArity() {
    return 6;
  }

  public Object productElement(int index) {
    return new Object[] {left, right, spec, leftVector, rightVector, decision}[index];
  }

  public boolean canEqual(Object other) {
    return other instanceof NearestByExec;
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

  public String simpleString(int most) {
    return nodeName() + " " + spec + "; " + decision;
  }
}
