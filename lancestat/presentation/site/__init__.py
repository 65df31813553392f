"""A static site of a project report: pages that open from a disk, without a network."""
