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
    for (Object each : reply.get("columns").properties()) {
      Map.Entry told = (Map.Entry) each;
      String name = (String) told.getKey();
      columns.put(
          new ColumnName(name),
          new ColumnEstimate((JsonNode) told.getValue(), name, schema.apply(name).dataType()));
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
  final JsonNode told;
  final Object min;
  final Object max;

  ColumnEstimate(JsonNode told, String name, DataType type) {
    this.told = told;
    this.min = bound("min", name, type);
    this.max = bound("max", name, type);
  }

  Object bound(String key, String name, DataType type) {
    if (!told.hasNonNull(key)) {
      return null;
    }
    return CatalogColumnStat$.MODULE$.fromExternalString(told.get(key).asText(), name, type, 2);
  }

  OptionalLong count(String key) {
    if (!told.hasNonNull(key)) {
      return OptionalLong.empty();
    }
    return OptionalLong.of(told.get(key).asLong());
  }

  public Optional<Object> min() {
    return Optional.ofNullable(min);
  }

  public Optional<Object> max() {
    return Optional.ofNullable(max);
  }

  public OptionalLong distinctCount() {
    return count("distinctCount");
  }

  public OptionalLong nullCount() {
    return count("nullCount");
  }

  public OptionalLong avgLen() {
    return count("avgLen");
  }

  public OptionalLong maxLen() {
    return count("maxLen");
  }

  public Optional<Histogram> histogram() {
    if (!told.hasNonNull("histogram")) {
      return Optional.empty();
    }
    Histogram histogram = new EquiHeight(told.get("histogram"));
    return Optional.of(histogram);
  }
}

@SuppressWarnings({"rawtypes", "unchecked"})
final class EquiHeight implements Histogram {
  final JsonNode told;

  EquiHeight(JsonNode told) {
    this.told = told;
  }

  public double height() {
    return told.get("height").asDouble();
  }

  public HistogramBin[] bins() {
    List bins = new ArrayList();
    for (JsonNode bin : told.get("bins")) {
      bins.add(new Bin(bin));
    }
    return (HistogramBin[]) bins.toArray(new HistogramBin[0]);
  }
}

@SuppressWarnings({"cast"})
final class Bin implements HistogramBin {
  final JsonNode told;

  Bin(JsonNode told) {
    this.told = told;
  }

  public double lo() {
    return ((JsonNode) told.get(0)).asDouble();
  }

  public double hi() {
    return ((JsonNode) told.get(1)).asDouble();
  }

  public long ndv() {
    return ((JsonNode) told.get(2)).asLong();
  }
}
