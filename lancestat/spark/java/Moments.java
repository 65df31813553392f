package lancestat.relation;

import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.types.Decimal;

/** The mean of numbers, their variance, the least and the greatest; nulls count as nothing. */
final class Moments {
  // Squares of larger numbers, times some rows, would not be finite.
  private static final double MOST = 1e100;

  private double count;
  private double mean;
  private double squares;
  private double least = Double.POSITIVE_INFINITY;
  private double most = Double.NEGATIVE_INFINITY;

  /** The moments of values; null where some are no numbers or too large, or none is there. */
  static Moments of(Object[] values) {
    Moments made = new Moments();
    for (Object value : values) {
      if (value == null) {
        made.add(0);
      } else if (value instanceof Decimal) {
        made.add(((Decimal) value).toDouble());
      } else if (value instanceof Number) {
        made.add(((Number) value).doubleValue());
      } else {
        return null;
      }
    }
    boolean isSmall = Math.abs(made.mean) < MOST && made.squares < MOST * MOST;
    return made.count > 0 && isSmall ? made : null;
  }

  /** As Welford adds them up: Note on a Method for Calculating Corrected Sums of Squares, 1962. */
  private void add(double value) {
    count += 1;
    double distance = value - mean;
    mean += distance / count;
    squares += distance * (value - mean);
    least = Math.min(least, value);
    most = Math.max(most, value);
  }

  void describe(ObjectNode node) {
    node.put("mean", mean).put("variance", squares / count).put("least", least).put("most", most);
  }
}
