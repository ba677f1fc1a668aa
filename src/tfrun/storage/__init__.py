"""Objects at URLs (s3://, gs://) through fsspec, which is imported only when a URL is used."""
