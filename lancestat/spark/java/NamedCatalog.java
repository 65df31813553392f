package lancestat.relation;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A catalog of a project's target, whose tables lancestat reads. It cannot be written to. */
@SuppressWarnings({"rawtypes", "unchecked", "deprecation"})
final class NamedCatalog implements TableCatalog, SupportsNamespaces {
  final String name;
  final Catalogs.Names names;

  NamedCatalog(String name, Catalogs.Names names) {
    this.name = name;
    this.names = names;
  }

  public void initialize(String given, CaseInsensitiveStringMap options) {}

  public String name() {
    return name;
  }

  public Table loadTable(Identifier identifier) throws NoSuchTableException {
    return loaded(identifier, Catalogs.Names.question("load", identifier));
  }

  public Table loadTable(Identifier identifier, String version) throws NoSuchTableException {
    ObjectNode question = Catalogs.Names.question("load_at", identifier);
    return loaded(identifier, question.put("version", version));
  }

  public Table loadTable(Identifier identifier, long microseconds) throws NoSuchTableException {
    ObjectNode question = Catalogs.Names.question("load_at", identifier);
    return loaded(identifier, question.put("microseconds", microseconds));
  }

  // Those are asked for by what writes.
  public Table loadTable(Identifier identifier, Set privileges) throws NoSuchTableException {
    throw refusal();
  }

  Table loaded(Identifier identifier, ObjectNode question) throws NoSuchTableException {
    List answer;
    try {
      answer = names.ask(question);
    } catch (IllegalStateException error) {
      throw SparkApi.ofAnalysis(error);
    }
    if (answer.isEmpty()) {
      throw new NoSuchTableException(identifier);
    }
    Table table = names.table(answer);
    LanceTable.planned(table).catalog = name;
    return table;
  }

  public boolean tableExists(Identifier identifier) {
    return !names.ask(Catalogs.Names.question("exists", identifier)).isEmpty();
  }

  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    List tables = new ArrayList();
    for (JsonNode table : listed("tables", namespace)) {
      tables.add(SparkApi.identifier(namespace, table.asText()));
    }
    return (Identifier[]) tables.toArray(new Identifier[0]);
  }

  public String[][] listNamespaces() throws NoSuchNamespaceException {
    return listNamespaces(new String[0]);
  }

  public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
    List namespaces = new ArrayList();
    for (JsonNode inner : listed("namespaces", namespace)) {
      String[] parts = new String[namespace.length + 1];
      System.arraycopy(namespace, 0, parts, 0, namespace.length);
      parts[namespace.length] = inner.asText();
      namespaces.add(parts);
    }
    return (String[][]) namespaces.toArray(new String[0][]);
  }

  public boolean namespaceExists(String[] namespace) {
    return namespace.length == 0
        || !names.ask(Catalogs.Names.question("namespaces", namespace, null)).isEmpty();
  }

  public Map loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    if (!namespaceExists(namespace)) {
      throw new NoSuchNamespaceException(namespace);
    }
    return Collections.emptyMap();
  }

  JsonNode listed(String kind, String[] namespace) throws NoSuchNamespaceException {
    List answer = names.ask(Catalogs.Names.question(kind, namespace, null));
    if (answer.isEmpty()) {
      throw new NoSuchNamespaceException(namespace);
    }
    return ((JsonNode) answer.get(0)).get("names");
  }

  RuntimeException refusal() {
    return refusal(name);
  }

  static RuntimeException refusal(String name) {
    return new UnsupportedOperationException(
        "the catalog '"
            + name
            + "' only reads, since lancestat attached it: create, change and drop its tables with"
            + " what writes them, such as the Lance connector for Spark");
  }

  public Table createTable(Identifier table, StructType schema, Transform[] parts, Map settings) {
    throw refusal();
  }

  public Table createTable(Identifier table, Column[] columns, Transform[] parts, Map settings) {
    throw refusal();
  }

  public Table alterTable(Identifier identifier, TableChange... changes) {
    throw refusal();
  }

  public boolean dropTable(Identifier identifier) {
    throw refusal();
  }

  public boolean purgeTable(Identifier identifier) {
    throw refusal();
  }

  public void renameTable(Identifier from, Identifier to) {
    throw refusal();
  }

  public void createNamespace(String[] namespace, Map settings) {
    throw refusal();
  }

  public void alterNamespace(String[] namespace, NamespaceChange... changes) {
    throw refusal();
  }

  public boolean dropNamespace(String[] namespace, boolean cascade) {
    throw refusal();
  }
}
