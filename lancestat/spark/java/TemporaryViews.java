package lancestat.relation;

import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.catalog.TemporaryViewRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.command.ViewHelper$;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;

/**
 * Makes the temporary views of one session as Dataset.createOrReplaceTempView does, but without a
 * Dataset and a planned command for each, which take ten times as long.
 */
@SuppressWarnings({"rawtypes", "unchecked"})
final class TemporaryViews extends AbstractFunction1 {
  final SparkSession session;
  final SessionCatalog catalog;
  final boolean anythingCached;

  TemporaryViews(SparkSession session) {
    this.session = session;
    this.catalog = session.sessionState().catalog();
    this.anythingCached = !session.sharedState().cacheManager().isEmpty();
  }

  // Spark asks for the view that is replaced in order to uncache it.
  public Object apply(Object name) {
    if (anythingCached) {
      return catalog.getRawTempView((String) name);
    }
    return scala.Option.empty();
  }

  void replace(String name, LogicalPlan plan) {
    TemporaryViewRelation view =
        ViewHelper$.MODULE$.createTemporaryViewRelation(
            new TableIdentifier(name),
            session,
            true,
            this,
            scala.Option.empty(),
            plan,
            plan,
            (Seq) Nil$.MODULE$,
            scala.Option.empty());
    catalog.createTempView(name, view, true);
  }
}
