package lancestat.relation;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A column that its reader does not close.
 *
 * <p>Spark closes the columns of a batch when it has read them. The runner fills the same vectors
 * again, and a struct that was closed has lost its members. In the end the runner closes them all.
 */
class NonClosingVector extends ColumnVector {
  final ColumnVector delegate;

  NonClosingVector(ColumnVector delegate, DataType type) {
    super(type);
    this.delegate = delegate;
  }

  public void close() {}

  public boolean hasNull() {
    return delegate.hasNull();
  }

  public int numNulls() {
    return delegate.numNulls();
  }

  public boolean isNullAt(int row) {
    return delegate.isNullAt(row);
  }

  public boolean getBoolean(int row) {
    return delegate.getBoolean(row);
  }

  public byte getByte(int row) {
    return delegate.getByte(row);
  }

  public short getShort(int row) {
    return delegate.getShort(row);
  }

  public int getInt(int row) {
    return delegate.getInt(row);
  }

  public long getLong(int row) {
    return delegate.getLong(row);
  }

  public float getFloat(int row) {
    return delegate.getFloat(row);
  }

  public double getDouble(int row) {
    return delegate.getDouble(row);
  }

  public ColumnarArray getArray(int row) {
    return delegate.getArray(row);
  }

  public ColumnarMap getMap(int row) {
    return delegate.getMap(row);
  }

  public Decimal getDecimal(int row, int precision, int scale) {
    return delegate.getDecimal(row, precision, scale);
  }

  public UTF8String getUTF8String(int row) {
    return delegate.getUTF8String(row);
  }

  public byte[] getBinary(int row) {
    return delegate.getBinary(row);
  }

  public ColumnVector getChild(int ordinal) {
    return delegate.getChild(ordinal);
  }
}
