package lancestat.relation;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import org.apache.spark.sql.catalyst.catalog.CatalogColumnStat$;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.colstats.ColumnStatistics;
import org.apache.spark.sql.connector.read.colstats.Histogram;
import org.apache.spark.sql.connector.read.colstats.HistogramBin;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** The planner's estimate in Spark's form. */
@SuppressWarnings({"rawtypes", "unchecked"})
final class Estimate implements Statistics {
  final long rows;
  final long size;
  final Map columns = new HashMap();

  Estimate(long rows, long size) {
    this.rows = rows;
    this.size = size;
  }

  Estimate(JsonNode reply, StructType schema) {
    this(reply.get("rows").asLong(), reply.get("size").asLong());
    for (Object column : reply.get("columns").properties()) {
      Map.Entry entry = (Map.Entry) column;
      String name = (String) entry.getKey();
      columns.put(
          new ColumnName(name),
          new ColumnEstimate((JsonNode) entry.getValue(), name, schema.apply(name).dataType()));
    }
  }

  public OptionalLong sizeInBytes() {
    return OptionalLong.of(size);
  }

  public OptionalLong numRows() {
    return OptionalLong.of(rows);
  }

  public Map<NamedReference, ColumnStatistics> columnStats() {
    return columns;
  }
}

/** Spark finds an attribute by what this describes, which its own references put in quotes. */
final class ColumnName implements NamedReference {
  final String name;

  ColumnName(String name) {
    this.name = name;
  }

  public String[] fieldNames() {
    return new String[] {name};
  }

  public String describe() {
    return name;
  }

  public String toString() {
    return name;
  }
}

final class ColumnEstimate implements ColumnStatistics {
  final JsonNode json;
  final Object min;
  final Object max;

  ColumnEstimate(JsonNode json, String name, DataType type) {
    this.json = json;
    this.min = bound("min", name, type);
    this.max = bound("max", name, type);
  }

  Object bound(String key, String name, DataType type) {
    if (!json.hasNonNull(key)) {
      return null;
    }
    return CatalogColumnStat$.MODULE$.fromExternalString(json.get(key).asText(), name, type, 2);
  }

  OptionalLong count(String key) {
    if (!json.hasNonNull(key)) {
      return OptionalLong.empty();
    }
    return OptionalLong.of(json.get(key).asLong());
  }

  public Optional<Object> min() {
    return Optional.ofNullable(min);
  }

  public Optional<Object> max() {
    return Optional.ofNullable(max);
  }

  public OptionalLong distinctCount() {
    return count("distinct_count");
  }

  public OptionalLong nullCount() {
    return count("null_count");
  }

  public OptionalLong avgLen() {
    return count("avg_len");
  }

  public OptionalLong maxLen() {
    return count("max_len");
  }

  public Optional<Histogram> histogram() {
    if (!json.hasNonNull("histogram")) {
      return Optional.empty();
    }
    Histogram histogram = new EquiHeight(json.get("histogram"));
    return Optional.of(histogram);
  }
}

@SuppressWarnings({"rawtypes", "unchecked"})
final class EquiHeight implements Histogram {
  final JsonNode json;

  EquiHeight(JsonNode json) {
    this.json = json;
  }

  public double height() {
    return json.get("height").asDouble();
  }

  public HistogramBin[] bins() {
    List bins = new ArrayList();
    for (JsonNode bin : json.get("bins")) {
      bins.add(new Bin(bin));
    }
    return (HistogramBin[]) bins.toArray(new HistogramBin[0]);
  }
}

@SuppressWarnings({"cast"})
final class Bin implements HistogramBin {
  final JsonNode json;

  Bin(JsonNode json) {
    this.json = json;
  }

  public double lo() {
    return ((JsonNode) json.get(0)).asDouble();
  }

  public double hi() {
    return ((JsonNode) json.get(1)).asDouble();
  }

  public long ndv() {
    return ((JsonNode) json.get(2)).asLong();
  }
}
