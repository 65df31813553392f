package lancestat.relation;

import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Product;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/** What the nodes of NEAREST BY in logical and physical plans have in common. */
@SuppressWarnings({"cast", "rawtypes", "unchecked"})
final class NearestByNodes {
  private NearestByNodes() {}

  /**
   * The columns of both sides but for the vectors that are for the join alone, each nullable as
   * Spark's node has it.
   */
  static Seq output(
      Seq left, Seq right, NamedExpression leftVector, NamedExpression rightVector) {
    List attributes = new ArrayList();
    add(attributes, left, leftVector);
    add(attributes, right, rightVector);
    return Sequences.of(attributes);
  }

  private static void add(List attributes, Seq side, NamedExpression vector) {
    Iterator remaining = side.iterator();
    while (remaining.hasNext()) {
      Attribute attribute = (Attribute) remaining.next();
      if (!attribute.exprId().equals(vector.exprId())) {
        attributes.add(attribute.withNullability(true));
      }
    }
  }

  /** Columns as a schema with the places of the columns for names. */
  static StructType fields(Seq attributes) {
    StructField[] fields = new StructField[attributes.size()];
    for (int i = 0; i < fields.length; i++) {
      Attribute attribute = (Attribute) attributes.apply(i);
      fields[i] = new StructField("p" + i, attribute.dataType(), true, Metadata.empty());
    }
    return new StructType(fields);
  }

  static boolean equal(Product one, Object other) {
    if (one == other) {
      return true;
    }
    if (!(other instanceof Product) || other.getClass() != one.getClass()) {
      return false;
    }
    Product that = (Product) other;
    for (int i = 0; i < one.productArity(); i++) {
      if (!Objects.equals(one.productElement(i), that.productElement(i))) {
        return false;
      }
    }
    return true;
  }
}
