// Package clientsuites holds the dependencies on RabbitMQ's clients in Go whose own tests scripts/clientsuites runs, unmodified, against nodes.
package clientsuites

import (
	_ "github.com/rabbitmq/amqp091-go"                               // its tests are what this module is for
	_ "github.com/rabbitmq/rabbitmq-amqp-go-client/pkg/rabbitmqamqp" // likewise
)
