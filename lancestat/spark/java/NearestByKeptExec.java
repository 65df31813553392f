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
  final NearestBySpec spec;
  final String decision;

  public NearestByKeptExec(SparkPlan child, NearestBySpec spec, String decision) {
    this.child = child;
    this.spec = spec;
    this.decision = decision;
  }

  public String join() {
    return spec.toString();
  }

  public String decision() {
    return decision;
  }

  public Seq children() {
    List one = new ArrayList();
    one.add(child);
    return Sequences.of(one);
  }

  public SparkPlan withNewChildrenInternal(IndexedSeq children) {
    return new NearestByKeptExec((SparkPlan) children.apply(0), spec, decision);
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
    return 3;
  }

  public Object productElement(int index) {
    return new Object[] {child, spec, decision}[index];
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
    return nodeName() + " " + spec + "; " + decision;
  }
}
