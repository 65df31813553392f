package lancestat.relation;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression$;
import org.apache.spark.sql.catalyst.expressions.Unevaluable;

/** Rows of the fragments that a scan reads, on which Spark's own expressions are evaluated. */
@SuppressWarnings({"cast", "rawtypes", "unchecked"})
final class ScanSample {
  private final LanceScan scan;
  // By the canonical form of the condition.
  private final Map passing = new HashMap();
  private int size;

  ScanSample(LanceScan scan) {
    this.scan = scan;
  }

  /** Whether a condition can be evaluated here, without a query or a Python worker. */
  static boolean evaluates(Expression condition) {
    if (condition instanceof Attribute) {
      return true;
    }
    if (condition instanceof Unevaluable || !condition.deterministic()) {
      return false;
    }
    scala.collection.Iterator below = condition.children().iterator();
    while (below.hasNext()) {
      if (!evaluates((Expression) below.next())) {
        return false;
      }
    }
    return !SubqueryExpression$.MODULE$.hasSubquery(condition);
  }

  /** Which rows pass a condition, a bit each; null where that cannot be said. */
  synchronized BitSet passing(Expression condition) {
    Expression key = (Expression) condition.canonicalized();
    if (!passing.containsKey(key)) {
      passing.put(key, evaluated(condition));
    }
    return (BitSet) passing.get(key);
  }

  /** The number of rows, once some were asked for. */
  int size() {
    return size;
  }

  private BitSet evaluated(Expression condition) {
    try {
      Map places = new HashMap();
      List names = new ArrayList();
      scala.collection.Iterator columns = condition.references().iterator();
      while (columns.hasNext()) {
        Attribute column = (Attribute) columns.next();
        Expression bound = new BoundReference(names.size(), column.dataType(), true);
        places.put(column.exprId(), bound);
        names.add(column.name());
      }
      Object[][] sampled = names.isEmpty() ? null : scan.table.sampled.of(scan.question, names);
      return sampled == null ? null : passing(Conditions.replaced(condition, places), sampled);
    } catch (Throwable error) {
      // As a cast that fails in ANSI mode, whose error has a value of a row.
      Failure.requireSurvivable(error);
      LanceRelation.LOG.debug("no sample of " + scan.table.name + ": " + error.getClass());
      return null;
    }
  }

  private BitSet passing(Expression condition, Object[][] values) {
    size = values[0].length;
    BitSet passing = new BitSet();
    Object[] row = new Object[values.length];
    InternalRow input = new GenericInternalRow(row);
    for (int at = 0; at < size; at++) {
      for (int i = 0; i < row.length; i++) {
        row[i] = values[i][at];
      }
      passing.set(at, Boolean.TRUE.equals(condition.eval(input)));
    }
    return passing;
  }
}
