"""OpenTelemetry traces of requests, where the standard environment variables name a collector."""

import os

from starlette.types import ASGIApp

from physai.sdk.base.errors import MissingExtraError

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def traced(app: ASGIApp) -> ASGIApp:
    """The application, with a span sent for each of its requests if `OTEL_EXPORTER_OTLP_ENDPOINT` is set.

    Raises:
        MissingExtraError: OpenTelemetry is configured but not installed.
    """
    if not any(os.environ.get(name) for name in ENDPOINTS):
        return app
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware  # pyright: ignore[reportMissingTypeStubs]
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"{ENDPOINTS[0]} is set, but {error.name} is missing; pip install 'physai-sdk[traces]', or unset it"
        ) from error
    name = os.environ.get("OTEL_SERVICE_NAME", "physai-sim-serve")
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    # A span for each message of a response says nothing that the request's own does not.
    return OpenTelemetryMiddleware(app, tracer_provider=provider, exclude_spans=["send", "receive"])
