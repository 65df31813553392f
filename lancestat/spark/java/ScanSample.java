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
  private static final int MOST_CODES = 256;

  private final LanceScan scan;
  // By the canonical forms of conditions and other expressions.
  private final Map passing = new HashMap();
  private final Map coded = new HashMap();
  private final Map moments = new HashMap();
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
      passing.put(key, passed(condition));
    }
    return (BitSet) passing.get(key);
  }

  /**
   * A number of each row's value of an expression, the same for the same value; null where that
   * cannot be said, and where there are more values than a byte has.
   */
  synchronized byte[] coded(Expression value) {
    Expression key = (Expression) value.canonicalized();
    if (!coded.containsKey(key)) {
      Object[] rows = evaluated(value);
      coded.put(key, rows == null ? null : coded(rows));
    }
    return (byte[]) coded.get(key);
  }

  /** The moments of an expression's values; null where they are no numbers, or cannot be said. */
  synchronized Moments moments(Expression value) {
    Expression key = (Expression) value.canonicalized();
    if (!moments.containsKey(key)) {
      Object[] rows = evaluated(value);
      moments.put(key, rows == null ? null : Moments.of(rows));
    }
    return (Moments) moments.get(key);
  }

  private static byte[] coded(Object[] rows) {
    Map codes = new HashMap();
    byte[] made = new byte[rows.length];
    for (int at = 0; at < made.length; at++) {
      Object value = rows[at];
      if (value != null && !(value instanceof Comparable)) {
        return null;
      }
      Integer code = (Integer) codes.get(value);
      if (code == null) {
        if (codes.size() == MOST_CODES) {
          return null;
        }
        code = Integer.valueOf(codes.size());
        codes.put(value, code);
      }
      made[at] = code.byteValue();
    }
    return made;
  }

  /** The number of rows, once some were asked for. */
  int size() {
    return size;
  }

  private BitSet passed(Expression condition) {
    Object[] rows = evaluated(condition);
    if (rows == null) {
      return null;
    }
    size = rows.length;
    BitSet passing = new BitSet();
    for (int at = 0; at < size; at++) {
      passing.set(at, Boolean.TRUE.equals(rows[at]));
    }
    return passing;
  }

  /** The values of an expression in all rows; null where it cannot be evaluated. */
  private Object[] evaluated(Expression value) {
    try {
      Map places = new HashMap();
      List names = new ArrayList();
      scala.collection.Iterator columns = value.references().iterator();
      while (columns.hasNext()) {
        Attribute column = (Attribute) columns.next();
        Expression bound = new BoundReference(names.size(), column.dataType(), true);
        places.put(column.exprId(), bound);
        names.add(column.name());
      }
      Object[][] sampled = names.isEmpty() ? null : scan.table.sampled.of(scan.question, names);
      return sampled == null ? null : evaluated(Conditions.replaced(value, places), sampled);
    } catch (Throwable error) {
      // As a cast that fails in ANSI mode, whose error has a value of a row.
      Failure.requireSurvivable(error);
      LanceRelation.LOG.debug("no sample of " + scan.table.name + ": " + error.getClass());
      return null;
    }
  }

  private static Object[] evaluated(Expression value, Object[][] columns) {
    Object[] made = new Object[columns[0].length];
    Object[] row = new Object[columns.length];
    InternalRow input = new GenericInternalRow(row);
    for (int at = 0; at < made.length; at++) {
      for (int i = 0; i < row.length; i++) {
        row[i] = columns[i][at];
      }
      made[at] = value.eval(input);
    }
    return made;
  }
}
