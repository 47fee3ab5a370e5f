"""Every scheme with a batched closed form, for every number of drafts, from one sort at most."""

from otm.table.table import AcceptanceTable, TableColumn, acceptance_table, table_columns

__all__ = ["AcceptanceTable", "TableColumn", "acceptance_table", "table_columns"]
