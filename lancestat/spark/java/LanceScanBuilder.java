package lancestat.relation;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.execution.datasources.v2.FileScanBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Takes Spark's own expressions as filters, which before Spark 4.1 only a builder of scans of files
 * is given.
 */
@SuppressWarnings({"rawtypes", "unchecked"})
final class LanceScanBuilder extends FileScanBuilder implements SupportsPushDownLimit {
  final LanceTable table;
  final CaseInsensitiveStringMap options;
  StructType columns;
  final List pushed = new ArrayList();
  ArrayNode filters = LanceRelation.JSON.createArrayNode();
  Integer limit;

  LanceScanBuilder(LanceTable table, CaseInsensitiveStringMap options) {
    super(SparkSession.active(), SparkApi.noFiles(), table.schema);
    this.table = table;
    this.options = options;
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

  // Spark gets all of them back: it estimates what they leave, and applies them once more.
  public scala.collection.immutable.Seq pushFilters(scala.collection.immutable.Seq given) {
    scala.collection.Iterator expressions = given.iterator();
    while (expressions.hasNext()) {
      Expression filter = (Expression) expressions.next();
      ObjectNode node = Filters.translate(filter, table.schema);
      if (node != null) {
        filters.add(node);
        pushed.add(Filters.shown(filter));
      }
    }
    return given;
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

  public Scan build() {
    return new LanceScan(this);
  }
}
