"""The codes and API numbers against two independent lists."""

import kio.schema.errors
from kafka.protocol.api_key import ApiKey as KafkaPythonApiKey

from kafscale.errors import KafscaleError
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.error_codes import ErrorCode, KafkaError


def test_codes_have_kafkas_names_and_numbers() -> None:
    theirs = {code.name.upper(): int(code) for code in kio.schema.errors.ErrorCode}
    assert {code.name: int(code) for code in ErrorCode} == theirs
    assert (theirs["NONE"], theirs["UNKNOWN_SERVER_ERROR"], theirs["NOT_LEADER_OR_FOLLOWER"]) == (0, -1, 6)


def test_apis_have_kafkas_names_and_numbers() -> None:
    assert {key.api_name: int(key) for key in ApiKey} == {key.name: int(key) for key in KafkaPythonApiKey}


def test_a_kafka_error_carries_its_code_and_message() -> None:
    error = KafkaError(ErrorCode.INVALID_CONFIG, "unknown key 'x'")
    assert isinstance(error, KafscaleError)
    assert (error.code, error.message) == (ErrorCode.INVALID_CONFIG, "unknown key 'x'")
    assert str(error) == "INVALID_CONFIG: unknown key 'x'"
    assert str(KafkaError(ErrorCode.NOT_CONTROLLER)) == "NOT_CONTROLLER"
