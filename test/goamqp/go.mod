// The codec of AMQP 1.0 against go-amqp's, which has no place in the module of the broker.
module bartleby.mq/test/goamqp

go 1.26.0

require (
	bartleby.mq v0.0.0
	github.com/Azure/go-amqp v1.7.0
	github.com/google/go-cmp v0.7.0
	pgregory.net/rapid v1.3.0
)

replace bartleby.mq => ../..
