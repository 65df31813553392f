package lancestat.relation;

import org.apache.spark.api.python.ChainedPythonFunctions;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Every partition is read in columns, as Arrow batches; Spark then asks for no rows. */
@SuppressWarnings({"rawtypes", "unchecked"})
final class ReaderFactory implements PartitionReaderFactory {
  private static final long serialVersionUID = 1L;
  final String scan;
  final StructType columns;
  final ChainedPythonFunctions reader;
  final scala.collection.immutable.Map conf;

  ReaderFactory(
      String scan,
      StructType columns,
      ChainedPythonFunctions reader,
      scala.collection.immutable.Map conf) {
    this.scan = scan;
    this.columns = columns;
    this.reader = reader;
    this.conf = conf;
  }

  public boolean supportColumnarReads(InputPartition partition) {
    return true;
  }

  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    throw new UnsupportedOperationException("Lance is read in columns");
  }

  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
    return new BatchReader(this, (Part) partition);
  }

  /** The text that tells the Python function what to read. */
  static final class Part implements InputPartition {
    private static final long serialVersionUID = 1L;
    final String text;

    Part(String text) {
      this.text = text;
    }
  }
}
