package lancestat.relation;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.CalendarInterval;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A column that its reader does not close.
 *
 * <p>Spark closes the columns of a batch when it has read them. The runner fills the same vectors
 * again, and a struct that was closed has lost its members. In the end the runner closes them all.
 */
class LentVector extends ColumnVector {
  final ColumnVector lent;

  LentVector(ColumnVector lent, DataType type) {
    super(type);
    this.lent = lent;
  }

  public void close() {}

  public boolean hasNull() {
    return lent.hasNull();
  }

  public int numNulls() {
    return lent.numNulls();
  }

  public boolean isNullAt(int row) {
    return lent.isNullAt(row);
  }

  public boolean getBoolean(int row) {
    return lent.getBoolean(row);
  }

  public byte getByte(int row) {
    return lent.getByte(row);
  }

  public short getShort(int row) {
    return lent.getShort(row);
  }

  public int getInt(int row) {
    return lent.getInt(row);
  }

  public long getLong(int row) {
    return lent.getLong(row);
  }

  public float getFloat(int row) {
    return lent.getFloat(row);
  }

  public double getDouble(int row) {
    return lent.getDouble(row);
  }

  public ColumnarArray getArray(int row) {
    return lent.getArray(row);
  }

  public ColumnarMap getMap(int row) {
    return lent.getMap(row);
  }

  public Decimal getDecimal(int row, int precision, int scale) {
    return lent.getDecimal(row, precision, scale);
  }

  public UTF8String getUTF8String(int row) {
    return lent.getUTF8String(row);
  }

  public byte[] getBinary(int row) {
    return lent.getBinary(row);
  }

  public CalendarInterval getInterval(int row) {
    return lent.getInterval(row);
  }

  public ColumnVector getChild(int ordinal) {
    return lent.getChild(ordinal);
  }
}
