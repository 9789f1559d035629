"""Sessions of a service as environments of frameworks that train elsewhere."""
