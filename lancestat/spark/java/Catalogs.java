package lancestat.relation;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.function.BiConsumer;
import java.util.function.Function;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;

/** The catalogs that one session has by name, and what Python is asked about their tables. */
@SuppressWarnings({"rawtypes", "unchecked"})
final class Catalogs {
  static final String SESSION_CATALOG = "spark_catalog";

  private Catalogs() {}

  /**
   * Makes a catalog answer with lancestat's tables, in place of what an earlier call did.
   *
   * @return whether the session has another catalog of that name, which is wrapped
   */
  static boolean attach(SparkSession session, String name, Names names) {
    CatalogManager manager = session.sessionState().catalogManager();
    synchronized (manager) {
      restore(manager, name);
      scala.collection.mutable.Map catalogs = SparkApi.catalogs(manager);
      if (!manager.isCatalogRegistered(name)) {
        catalogs.put(name, new NamedCatalog(name, names));
        return false;
      }
      CatalogPlugin original = manager.catalog(name);
      if (original instanceof TableCatalog) {
        Object wrapped = StandIn.of(original, new CatalogHandler((TableCatalog) original, names));
        catalogs.put(name, wrapped);
      }
      return true;
    }
  }

  /** Restores what a session had under a name before; false where nothing is attached. */
  static boolean detach(SparkSession session, String name) {
    CatalogManager manager = session.sessionState().catalogManager();
    synchronized (manager) {
      scala.Option held = SparkApi.catalogs(manager).get(name);
      if (held.isDefined()
          && held.get() instanceof NamedCatalog
          && manager.currentCatalog() == held.get()) {
        manager.setCurrentCatalog(SESSION_CATALOG);
      }
      return restore(manager, name);
    }
  }

  private static boolean restore(CatalogManager manager, String name) {
    scala.collection.mutable.Map catalogs = SparkApi.catalogs(manager);
    scala.Option held = catalogs.get(name);
    if (held.isEmpty()) {
      return false;
    }
    Object handler = StandIn.handler(held.get());
    if (handler instanceof CatalogHandler) {
      catalogs.put(name, ((CatalogHandler) handler).original);
      return true;
    }
    if (!(held.get() instanceof NamedCatalog)) {
      return false;
    }
    catalogs.remove(name);
    return true;
  }

  /** Python's knowledge of the tables of one catalog, and what makes relations of them. */
  static final class Names {
    final SparkSession session;
    final Function planner;
    final BiConsumer asked;

    Names(SparkSession session, Function planner, BiConsumer asked) {
      this.session = session;
      this.planner = planner;
      this.asked = asked;
    }

    static ObjectNode question(String op, String[] namespace, String name) {
      ObjectNode question = LanceRelation.JSON.createObjectNode().put("op", op);
      ArrayNode parts = question.putArray("identifier");
      for (int i = 0; i < namespace.length; i++) {
        parts.add(namespace[i]);
      }
      if (name != null) {
        parts.add(name);
      }
      return question;
    }

    static ObjectNode question(String op, Identifier identifier) {
      return question(op, identifier.namespace(), identifier.name());
    }

    /** The answer to a question, an empty list where there is no such table or namespace. */
    List ask(ObjectNode question) {
      List answer = new ArrayList();
      asked.accept(question.toString(), answer);
      try {
        if (!answer.isEmpty()) {
          JsonNode first = LanceRelation.JSON.readTree((String) answer.get(0));
          if (first.hasNonNull("error")) {
            throw Failure.explained(new IllegalStateException(first.get("error").asText()));
          }
          answer.set(0, first);
        }
        return answer;
      } catch (IOException error) {
        throw new IllegalStateException(error);
      }
    }

    /** The table that an answer declares; its second member reads it. */
    Table table(List answer) {
      JsonNode declared = ((JsonNode) answer.get(0)).get("table");
      return LanceRelation.table(session, planner, answer.get(1), declared);
    }
  }
}
