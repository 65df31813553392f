package lancestat.relation;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;

/** Decimals of up to 18 digits over their unscaled integers. */
final class UnscaledDecimals extends LentVector {
  UnscaledDecimals(ColumnVector longs, DataType type) {
    super(longs, type);
  }

  public Decimal getDecimal(int row, int precision, int scale) {
    return lent.isNullAt(row) ? null : Decimal.createUnsafe(lent.getLong(row), precision, scale);
  }
}
