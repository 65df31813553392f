package lancestat.relation;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import javassist.util.proxy.MethodHandler;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Answers for another catalog as that does, but with tables whose scans have statistics.
 *
 * <p>Such a table is the catalog's own in everything else. Tables that are loaded to be written to
 * or at an earlier version, and those that the project does not declare, are handed on as they are.
 */
@SuppressWarnings({"rawtypes", "unchecked"})
final class CatalogHandler implements MethodHandler {
  static final Set LOADS =
      new HashSet(Arrays.asList(new Object[] {"loadTable", "loadRelation", "loadTableOrView"}));
  final TableCatalog original;
  final Catalogs.Names names;

  CatalogHandler(TableCatalog original, Catalogs.Names names) {
    this.original = original;
    this.names = names;
  }

  public Object invoke(Object self, Method method, Method ignored, Object[] args)
      throws Throwable {
    Object result = StandIn.call(original, method, args);
    if (result instanceof Table && LOADS.contains(method.getName()) && SparkApi.isRead(args)) {
      return read((Identifier) args[0], (Table) result);
    }
    return result;
  }

  Table read(Identifier identifier, Table table) {
    try {
      String uri = uri(table);
      if (uri == null || !ConnectorRelation.isReadable(table)) {
        return table;
      }
      StructType columns = ConnectorRelation.columns(table);
      ObjectNode question = Catalogs.Names.question("load_as", identifier);
      question.put("uri", uri).put("schema", columns.json());
      List answer = names.ask(question);
      if (answer.isEmpty()) {
        return table;
      }
      JsonNode declared = ((JsonNode) answer.get(0)).get("table");
      LanceTable planned =
          new LanceTable(declared, names.session.sparkContext(), names.planner, null);
      Table pinned = original.loadTable(identifier, planned.version);
      // Another has changed the table between the two looks at it.
      if (!columns.equals(ConnectorRelation.columns(pinned)) || !uri.equals(uri(pinned))) {
        return table;
      }
      return (Table) StandIn.of(table, new TableHandler(table, pinned, planned));
    } catch (Exception error) {
      // No query fails for want of statistics.
      LanceRelation.LOG.warn("no statistics for " + identifier + ": " + error.getMessage());
      return table;
    }
  }

  /** The dataset that a table of the Lance connector reads, null of any other source's table. */
  static String uri(Table table) throws ReflectiveOperationException {
    try {
      return (String) asked(asked(table, "readOptions"), "getDatasetUri");
    } catch (NoSuchMethodException other) {
      return null;
    }
  }

  private static Object asked(Object target, String name) throws ReflectiveOperationException {
    return target.getClass().getMethod(name, new Class[0]).invoke(target, new Object[0]);
  }

  /** Scans a table at the version that its statistics describe, and leaves the rest to it. */
  static final class TableHandler implements MethodHandler {
    final Table inner;
    final LanceTable planned;
    final ConnectorRelation.ConnectorTable scanned;

    TableHandler(Table inner, Table pinned, LanceTable planned) {
      this.inner = inner;
      this.planned = planned;
      this.scanned = new ConnectorRelation.ConnectorTable(pinned, planned);
    }

    public Object invoke(Object self, Method method, Method ignored, Object[] args)
        throws Throwable {
      String name = method.getName();
      if (name.equals("newScanBuilder") && args.length == 1) {
        return builder((CaseInsensitiveStringMap) args[0]);
      }
      if (name.equals("equals") && args.length == 1) {
        MethodHandler other = StandIn.handler(args[0]);
        return Boolean.valueOf(
            other instanceof TableHandler && planned.equals(((TableHandler) other).planned));
      }
      if (name.equals("hashCode") && args.length == 0) {
        return Integer.valueOf(planned.hashCode());
      }
      Object result = StandIn.call(inner, method, args);
      return result == null && name.equals("version") ? planned.version : result;
    }

    ScanBuilder builder(CaseInsensitiveStringMap options) {
      for (Object key : options.keySet()) {
        if (ConnectorRelation.ConnectorTable.SETTLED.contains(
            ((String) key).toLowerCase(Locale.ROOT))) {
          return ((SupportsRead) inner).newScanBuilder(options);
        }
      }
      return scanned.newScanBuilder(options);
    }
  }
}
