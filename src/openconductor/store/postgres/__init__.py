"""The store in a PostgreSQL database, which many processes write and read (extra ``postgres``)."""
