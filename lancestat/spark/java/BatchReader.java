package lancestat.relation;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.python.ArrowPythonRunner;
import org.apache.spark.sql.types.AtomicType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.util.TaskCompletionListener;

/** Runs the Python function over one part and hands out what it yields. */
@SuppressWarnings({"rawtypes", "unchecked"})
final class BatchReader implements PartitionReader<ColumnarBatch>, TaskCompletionListener {
  // `PythonEvalType.SQL_MAP_ARROW_ITER_UDF`.
  static final int MAP_ARROW_ITER = 207;
  static final String[] METRICS =
      new String[] {
        "pythonDataSent", "pythonDataReceived", "pythonProcessingTime", "pythonBootTime",
        "pythonInitTime", "pythonTotalTime", "pythonNumRowsReceived"
      };
  static final long NEW_WORKER_NANOS = 1000000000L;
  final StructType columns;
  final scala.collection.Iterator batches;
  ArrowColumnVector source;
  ColumnVector[] vectors;
  ColumnarBatch current;

  BatchReader(ReaderFactory factory, ReaderFactory.Part part) {
    this.columns = factory.columns;
    byte[] text = (factory.scan + "\n" + part.text).getBytes(StandardCharsets.UTF_8);
    Object row = struct(struct(text));
    StructType inner = new StructType().add("value", DataTypes.BinaryType);
    scala.collection.immutable.Map metrics =
        (scala.collection.immutable.Map) scala.collection.immutable.Map$.MODULE$.empty();
    for (int i = 0; i < METRICS.length; i++) {
      Object updated = metrics.updated(METRICS[i], new SQLMetric("size", 0L));
      metrics = (scala.collection.immutable.Map) updated;
    }
    ArrowPythonRunner runner =
        SparkApi.runner(
            factory.reader,
            MAP_ARROW_ITER,
            new StructType().add("struct", inner),
            factory.conf,
            metrics);
    TaskContext context = TaskContext.get();
    this.batches = runner.compute(single(single(row)), context.partitionId(), context);
    context.addTaskCompletionListener(this);
  }

  static InternalRow struct(Object value) {
    return new GenericInternalRow(new Object[] {value});
  }

  static scala.collection.Iterator single(Object value) {
    return scala.collection.Iterator$.MODULE$.single(value);
  }

  public boolean next() throws IOException {
    try {
      if (!batches.hasNext()) {
        return false;
      }
      present((ColumnarBatch) batches.next());
      return true;
    } catch (RuntimeException error) {
      throw Failure.explained(error);
    }
  }

  void present(ColumnarBatch batch) {
    ArrowColumnVector struct = (ArrowColumnVector) batch.column(0);
    if (columns.size() == 0) {
      current = new ColumnarBatch(new ColumnVector[0]);
      current.setNumRows((int) struct.getChild(0).getLong(0));
      return;
    }
    if (struct != source) {
      source = struct;
      vectors = new ColumnVector[columns.size()];
      for (int i = 0; i < vectors.length; i++) {
        ColumnVector child = struct.getChild(i);
        DataType type = columns.apply(i).dataType();
        if (type instanceof DecimalType && child.dataType() == DataTypes.LongType) {
          vectors[i] = new UnscaledDecimals(child, type);
        } else if (type instanceof AtomicType) {
          vectors[i] = child;
        } else {
          vectors[i] = new NonClosingVector(child, type);
        }
      }
    }
    current = new ColumnarBatch(vectors);
    current.setNumRows(batch.numRows());
  }

  public ColumnarBatch get() {
    return current;
  }

  // The runner closes with its task.
  public void close() {}

  // A limit leaves batches unread. Spark ends a worker that is cut off while it writes, and the next
  // task waits for a new one; the rest of a part takes less than that, mostly. Listeners that come
  // last are called first, and so before the runner's own.
  public void onTaskCompletion(TaskContext context) {
    long deadline = System.nanoTime() + NEW_WORKER_NANOS;
    try {
      while (!context.isFailed()
          && !context.isInterrupted()
          && System.nanoTime() < deadline
          && batches.hasNext()) {
        batches.next();
      }
    } catch (RuntimeException error) {
      LanceRelation.LOG.debug("what nobody reads any more failed", error);
    }
  }
}
