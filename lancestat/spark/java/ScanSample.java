package lancestat.relation;

import java.util.ArrayList;
import java.util.Arrays;
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

  // What can be made of the values of an expression.
  private static final String PASSING = "passing";
  private static final String CODES = "codes";
  private static final String MOMENTS = "moments";

  private final LanceScan scan;
  // By what was made, and the canonical form of the expression.
  private final Map known = new HashMap();
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
  BitSet passing(Expression condition) {
    return (BitSet) known(PASSING, condition);
  }

  /**
   * A number of each row's value of an expression, the same for the same value; null where that
   * cannot be said, and where there are more values than a byte has.
   */
  byte[] coded(Expression value) {
    return (byte[]) known(CODES, value);
  }

  /** The moments of an expression's values; null where they are no numbers, or cannot be said. */
  Moments moments(Expression value) {
    return (Moments) known(MOMENTS, value);
  }

  private synchronized Object known(String what, Expression value) {
    List key = Arrays.asList(new Object[] {what, value.canonicalized()});
    if (!known.containsKey(key)) {
      known.put(key, made(what, value));
    }
    return known.get(key);
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

  private static Object made(String what, Object[] rows) {
    if (what.equals(PASSING)) {
      return passed(rows);
    }
    return what.equals(CODES) ? (Object) coded(rows) : (Object) Moments.of(rows);
  }

  private static BitSet passed(Object[] rows) {
    BitSet passing = new BitSet();
    for (int at = 0; at < rows.length; at++) {
      passing.set(at, Boolean.TRUE.equals(rows[at]));
    }
    return passing;
  }

  /** Makes something of an expression's values, unless a scan of the same rows already has. */
  private Object made(String what, Expression value) {
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
      SampledColumns.Sample sample =
          names.isEmpty() ? null : scan.table.sampled.of(scan.question, names);
      if (sample == null) {
        return null;
      }
      Object[][] sampled = sample.values(names);
      size = sampled[0].length;
      Expression bound = Conditions.replaced(value, places);
      List key = Arrays.asList(new Object[] {what, names, bound.canonicalized()});
      Object[] known = sample.made(key);
      if (known != null) {
        return known[0];
      }
      Object made = made(what, evaluated(bound, sampled));
      sample.keep(key, made);
      return made;
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
