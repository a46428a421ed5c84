package partition

import "bartleby.mq/internal/core/queue"

// create writes the command that makes a queue.
func (w *commandWriter) create(q *Queue) { q.creation(w) }

func (w *commandWriter) configure(q *Queue) { q.configuration(w) }

func (w *commandWriter) attach(q uint64, c *queue.Consumer, credit int) {
	o := attachmentOf(c)
	o.credit = credit
	o.write(w, q)
}

func (w *commandWriter) detach(q uint64, c *queue.Consumer) { detach{c.Number}.write(w, q) }

func (w *commandWriter) get(q, consumer uint64, noAck bool) { get{consumer, noAck}.write(w, q) }
