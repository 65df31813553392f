package lancestat.relation;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.types.StructType;

/** Answers to aggregates, which nothing is read for. */
final class AggregateScan implements SupportsReportStatistics, Batch, Explained {
  final ScanQuestion question;
  final String shown;
  final StructType schema;
  final Object[][] rows;
  boolean isVerified;

  AggregateScan(ScanQuestion question, String shown, StructType schema, Object[][] rows) {
    this.question = question;
    this.shown = shown;
    this.schema = schema;
    this.rows = rows;
  }

  public StructType readSchema() {
    return schema;
  }

  public String description() {
    return question.description() + ", PushedAggregates: [" + shown + "]";
  }

  public String explanation() {
    return question.aggregates.get("explanation").asText();
  }

  public Statistics estimateStatistics() {
    return new Estimate((long) rows.length, rows.length * (schema.defaultSize() + 8L));
  }

  public Batch toBatch() {
    return this;
  }

  // As for rows, the dataset has to be the one that was observed. Spark asks more than once.
  public synchronized InputPartition[] planInputPartitions() {
    if (!isVerified) {
      question.ask(question.request("verify"));
      isVerified = true;
    }
    return new InputPartition[] {new Answers(rows)};
  }

  public PartitionReaderFactory createReaderFactory() {
    return new AnswersFactory();
  }

  public boolean equals(Object other) {
    if (!(other instanceof AggregateScan)) {
      return false;
    }
    AggregateScan that = (AggregateScan) other;
    return question.equals(that.question)
        && schema.equals(that.schema)
        && Arrays.deepEquals(rows, that.rows);
  }

  public int hashCode() {
    return question.hashCode() * 31 + schema.hashCode();
  }

  static final class Answers implements InputPartition {
    private static final long serialVersionUID = 1L;
    final Object[][] rows;

    Answers(Object[][] rows) {
      this.rows = rows;
    }
  }

  static final class AnswersFactory implements PartitionReaderFactory {
    private static final long serialVersionUID = 1L;

    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      return new AnswersReader(((Answers) partition).rows);
    }
  }

  static final class AnswersReader implements PartitionReader<InternalRow> {
    final Object[][] rows;
    int row = -1;

    AnswersReader(Object[][] rows) {
      this.rows = rows;
    }

    public boolean next() {
      row++;
      return row < rows.length;
    }

    public InternalRow get() {
      return new GenericInternalRow(rows[row]);
    }

    public void close() {}
  }
}
