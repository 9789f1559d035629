"""An S3 server on loopback: moto's, which keeps objects in memory and speaks S3's protocol over HTTP."""

from collections.abc import Generator
from typing import Any

import pytest

BUCKET = "robots"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture(scope="session")
def s3_server() -> Generator[str]:
    """Address of a server with one empty bucket."""
    pytest.importorskip("s3fs")
    moto: Any = pytest.importorskip("moto.server")
    boto3: Any = pytest.importorskip("boto3")
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    running.start()
    host, port = running.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    credentials = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **credentials).create_bucket(Bucket=BUCKET)
    yield endpoint
    running.stop()


@pytest.fixture
def server(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Address of the server, to which the environment leads."""
    for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": s3_server}.items():
        monkeypatch.setenv(name, value)
    return s3_server
