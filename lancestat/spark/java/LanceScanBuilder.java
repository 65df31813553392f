package lancestat.relation;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.execution.datasources.v2.FileScanBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.immutable.Nil$;

/**
 * Takes Spark's own expressions as filters, which before Spark 4.1 only a builder of scans of files
 * is given.
 */
@SuppressWarnings({"rawtypes", "unchecked"})
final class LanceScanBuilder extends FileScanBuilder
    implements SupportsPushDownLimit, SupportsPushDownAggregates {
  final LanceTable table;
  final ScanQuestion question;
  StructType columns;
  Integer limit;
  AggregateScan answered;

  LanceScanBuilder(LanceTable table, CaseInsensitiveStringMap options) {
    super(SparkSession.active(), SparkApi.noFiles(), table.schema);
    this.table = table;
    this.question = new ScanQuestion(table, options);
    this.columns = table.schema;
  }

  // Whole columns, even where Spark needs only some fields of a struct.
  public void pruneColumns(StructType required) {
    List fields = new ArrayList();
    for (StructField field : required.fields()) {
      fields.add(table.schema.fields()[table.schema.fieldIndex(field.name())]);
    }
    columns = new StructType((StructField[]) fields.toArray(new StructField[0]));
  }

  // Spark gets all of them back, estimates what they leave and applies them once more, unless they
  // keep whole fragments: above filters of its own it pushes no aggregates.
  public scala.collection.immutable.Seq pushFilters(scala.collection.immutable.Seq given) {
    question.add(given);
    return question.proveCovered() ? (scala.collection.immutable.Seq) Nil$.MODULE$ : given;
  }

  // None that Spark could leave out.
  public Predicate[] pushedFilters() {
    return new Predicate[0];
  }

  public boolean pushLimit(int rows) {
    limit = Integer.valueOf(rows);
    return true;
  }

  // Every task stops there, and Spark stops after all of them.
  public boolean isPartiallyPushed() {
    return true;
  }

  // One row is the whole result, except where rows are counted: see Aggregates.
  public boolean supportCompletePushDown(Aggregation aggregation) {
    return translated(aggregation) != null && !Aggregates.countsRows(aggregation);
  }

  ArrayNode translated(Aggregation aggregation) {
    try {
      return Aggregates.translate(aggregation, table.schema);
    } catch (Throwable error) {
      Failure.survived("aggregates of " + table.name + " stay", error);
      return null;
    }
  }

  public boolean pushAggregation(Aggregation aggregation) {
    ArrayNode translated = translated(aggregation);
    if (translated == null) {
      return false;
    }
    try {
      ObjectNode request = question.request("aggregate");
      request.set("aggregates", translated);
      JsonNode decision = question.ask(request);
      question.aggregates = decision;
      if (decision.hasNonNull("values")) {
        StructType schema = Aggregates.schema(translated, table.schema);
        Object[][] rows = Aggregates.rows(aggregation, decision.get("values"), schema);
        answered = new AggregateScan(question, shown(aggregation), schema, rows);
      }
    } catch (Throwable error) {
      question.aggregates = null;
      Failure.survived("aggregates of " + table.name + " stay", error);
    }
    return answered != null;
  }

  static String shown(Aggregation aggregation) {
    List functions = new ArrayList();
    for (AggregateFunc function : aggregation.aggregateExpressions()) {
      functions.add(function.toString());
    }
    return String.join(", ", (List<String>) functions);
  }

  public Scan build() {
    return answered == null ? new LanceScan(this) : answered;
  }
}
