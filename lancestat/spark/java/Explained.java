package lancestat.relation;

/** A scan that the planner can explain. */
interface Explained {
  /** The name of its explanation, null where there is none. */
  String explanation();
}
