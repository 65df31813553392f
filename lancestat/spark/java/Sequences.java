package lancestat.relation;

import java.util.List;
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
}
