package lancestat.relation;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** Decimals of up to 18 digits over their unscaled integers. */
final class UnscaledDecimals extends ColumnVector {
  final ColumnVector longs;

  UnscaledDecimals(ColumnVector longs, DataType type) {
    super(type);
    this.longs = longs;
  }

  public Decimal getDecimal(int row, int precision, int scale) {
    return longs.isNullAt(row) ? null : Decimal.createUnsafe(longs.getLong(row), precision, scale);
  }

  public void close() {
    longs.close();
  }

  public boolean hasNull() {
    return longs.hasNull();
  }

  public int numNulls() {
    return longs.numNulls();
  }

  public boolean isNullAt(int row) {
    return longs.isNullAt(row);
  }

  public boolean getBoolean(int row) {
    throw new UnsupportedOperationException();
  }

  public byte getByte(int row) {
    throw new UnsupportedOperationException();
  }

  public short getShort(int row) {
    throw new UnsupportedOperationException();
  }

  public int getInt(int row) {
    throw new UnsupportedOperationException();
  }

  public long getLong(int row) {
    return longs.getLong(row);
  }

  public float getFloat(int row) {
    throw new UnsupportedOperationException();
  }

  public double getDouble(int row) {
    throw new UnsupportedOperationException();
  }

  public ColumnarArray getArray(int row) {
    throw new UnsupportedOperationException();
  }

  public ColumnarMap getMap(int row) {
    throw new UnsupportedOperationException();
  }

  public UTF8String getUTF8String(int row) {
    throw new UnsupportedOperationException();
  }

  public byte[] getBinary(int row) {
    throw new UnsupportedOperationException();
  }

  public ColumnVector getChild(int ordinal) {
    throw new UnsupportedOperationException();
  }
}
