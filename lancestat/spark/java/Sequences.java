package lancestat.relation;

import java.util.ArrayList;
import java.util.List;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/** Scala's sequences. */
@SuppressWarnings({"cast", "rawtypes", "unchecked"})
final class Sequences {
  private Sequences() {}

  static Seq of(List elements) {
    scala.collection.immutable.List made = (scala.collection.immutable.List) Nil$.MODULE$;
    for (int i = elements.size() - 1; i >= 0; i--) {
      made = made.$colon$colon(elements.get(i));
    }
    return made;
  }

  // Scala's own has other parameters in Spark 3.5.
  static Seq appended(scala.collection.Seq elements, Object last) {
    List made = new ArrayList();
    Iterator remaining = elements.iterator();
    while (remaining.hasNext()) {
      made.add(remaining.next());
    }
    made.add(last);
    return of(made);
  }
}
