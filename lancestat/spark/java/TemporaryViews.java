package lancestat.relation;

import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
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
    catalog.createTempView(name, SparkApi.temporaryView(session, name, plan, this), true);
  }
}
