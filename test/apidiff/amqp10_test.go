package apidiff

import "testing"

// BR-15, BR-17: what is shown of clients of AMQP 1.0, their sessions and links, has RabbitMQ's names and values, and a client hears
// from an operator what it hears from RabbitMQ.
func TestAMQP10IsShownAsByRabbitMQ(t *testing.T) {
	if *record {
		shapes, err := target{*peerHTTP, *peerAMQP, *peerMetrics}.shapes10(statisticsLag)
		if err != nil {
			t.Fatal(err)
		}
		write(t, amqp10File, order10(), shapes)
		return
	}
	shapes, err := start(t, "compatibility.strict = true\n").shapes10(0)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, order10(), amqp10File, amqp10ExceptionFile, shapes)
}
