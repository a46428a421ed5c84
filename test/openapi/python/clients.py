"""Alibaba Cloud's clients behind one face: call(action, **parameters) returns the answer as a dict,
or raises Refused. Parameters are named as in the API's reference."""

import importlib
import json
import re

from alibabacloud_amqp_open20191212 import models
from alibabacloud_amqp_open20191212.client import Client
from alibabacloud_tea_openapi.exceptions import ClientException as TypedError
from alibabacloud_tea_openapi.utils_models import Config
from aliyunsdkcore.acs_exception.exceptions import ServerException
from aliyunsdkcore.client import AcsClient


class Refused(Exception):
    def __init__(self, status, code):
        super().__init__(f"{status} {code}")
        self.status, self.code = status, code


def snake(name):
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


class Typed:
    """alibabacloud_amqp_open20191212, by the newer signature or, with v2, by the older."""

    def __init__(self, endpoint, key, secret, algorithm=None):
        self.client = Client(Config(
            access_key_id=key, access_key_secret=secret, endpoint=endpoint, protocol="http", signature_algorithm=algorithm))

    def call(self, action, **parameters):
        request = getattr(models, action + "Request")(**{snake(k): v for k, v in parameters.items()})
        try:
            response = getattr(self.client, snake(action))(request)
        except TypedError as e:
            raise Refused(e.status_code, e.code) from e
        return response.body.to_map()


class Older:
    """aliyun-python-sdk-amqp-open."""

    def __init__(self, endpoint, key, secret):
        self.endpoint = endpoint
        self.client = AcsClient(key, secret, "cn-hangzhou", auto_retry=False)

    def call(self, action, **parameters):
        module = importlib.import_module(f"aliyunsdkamqp_open.request.v20191212.{action}Request")
        request = getattr(module, action + "Request")()
        request.set_endpoint(self.endpoint)
        request.set_accept_format("json")
        for name, value in parameters.items():
            getattr(request, "set_" + name)(value)
        try:
            return json.loads(self.client.do_action_with_exception(request))
        except ServerException as e:
            raise Refused(e.get_http_status(), e.get_error_code()) from e
