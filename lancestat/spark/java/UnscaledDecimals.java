package lancestat.relation;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;

/** Decimals of up to 18 digits over their unscaled integers. */
final class UnscaledDecimals extends NonClosingVector {
  UnscaledDecimals(ColumnVector longs, DataType type) {
    super(longs, type);
  }

  public Decimal getDecimal(int row, int precision, int scale) {
    if (delegate.isNullAt(row)) {
      return null;
    }
    return Decimal.createUnsafe(delegate.getLong(row), precision, scale);
  }
}
