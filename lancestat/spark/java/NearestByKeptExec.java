package lancestat.relation;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/** Passes on the rows of Spark's own plan of a join, and says why it was chosen. */
@SuppressWarnings({"cast", "rawtypes", "unchecked", "serial"})
public final class NearestByKeptExec extends SparkPlan {
  private static final long serialVersionUID = 1L;
  final SparkPlan child;
  final String text;

  public NearestByKeptExec(SparkPlan child, String text) {
    this.child = child;
    this.text = text;
  }

  public Seq children() {
    List one = new ArrayList();
    one.add(child);
    return NearestByNodes.seq(one);
  }

  public SparkPlan withNewChildrenInternal(IndexedSeq children) {
    return new NearestByKeptExec((SparkPlan) children.apply(0), text);
  }

  public Seq output() {
    return child.output();
  }

  public Partitioning outputPartitioning() {
    return child.outputPartitioning();
  }

  public RDD doExecute() {
    return child.execute();
  }

  public int productArity() {
    return 2;
  }

  public Object productElement(int index) {
    return index == 0 ? (Object) child : text;
  }

  public boolean canEqual(Object other) {
    return other instanceof NearestByKeptExec;
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
    return nodeName() + " " + text;
  }
}
