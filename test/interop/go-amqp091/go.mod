module bartleby.mq/test/interop/go-amqp091

go 1.26.0

require github.com/rabbitmq/amqp091-go v1.16.0
