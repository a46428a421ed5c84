package metrics

import "bartleby.mq/internal/run/broker"

// RabbitMQ labels connections and channels with the process that serves them, under
// the name "channel" for both. Here it is their name.
const objectLabel = "channel"

func connectionGauge(name, help string) *metric   { return gauge(name, help, objectLabel) }
func connectionCounter(name, help string) *metric { return counter(name, help, objectLabel) }
func queueOfChannel(name, help string) *metric {
	return counter(name, help, objectLabel, "vhost", "queue")
}
func exchangeOfChannel(name, help string) *metric {
	return counter(name, help, objectLabel, "vhost", "exchange")
}

var (
	incomingBytes        = connectionCounter("connection_incoming_bytes_total", "Total number of bytes received on a connection")
	outgoingBytes        = connectionCounter("connection_outgoing_bytes_total", "Total number of bytes sent on a connection")
	connectionReductions = connectionCounter("connection_process_reductions_total", "Total number of connection process reductions")
)

// eachClient calls f with the session of each requested connection.
func (s *scrape) eachClient(f func(client broker.Client)) {
	for _, c := range s.Broker.Connections() {
		if client := c.Client(); client != nil && s.sees(c.VHost) {
			f(client)
		}
	}
}

// eachConnection calls f for each requested connection.
func (s *scrape) eachConnection(f func(st *broker.ConnectionStatus)) {
	s.eachClient(func(client broker.Client) {
		st := client.Status()
		f(&st)
	})
}

var connectionCoarseFamily = &family{
	name: "connection_coarse_metrics", objects: true, metrics: []*metric{incomingBytes, outgoingBytes, connectionReductions},
	collect: func(s *scrape) {
		s.eachConnection(func(st *broker.ConnectionStatus) {
			s.put(incomingBytes, float64(st.ReceivedBytes), st.Name)
			s.put(outgoingBytes, float64(st.SentBytes), st.Name)
			s.put(connectionReductions, 0, st.Name)
		})
	},
}

var (
	incomingPackets    = connectionCounter("connection_incoming_packets_total", "Total number of packets received on a connection")
	outgoingPackets    = connectionCounter("connection_outgoing_packets_total", "Total number of packets sent on a connection")
	pendingPackets     = connectionGauge("connection_pending_packets", "Number of packets waiting to be sent on a connection")
	connectionChannels = connectionGauge("connection_channels", "Channels on a connection")
)

var connectionFamily = &family{
	name: "connection_metrics", objects: true, metrics: []*metric{incomingPackets, outgoingPackets, pendingPackets, connectionChannels},
	collect: func(s *scrape) {
		s.eachConnection(func(st *broker.ConnectionStatus) {
			s.put(incomingPackets, float64(st.ReceivedFrames), st.Name)
			s.put(outgoingPackets, float64(st.Writes), st.Name)
			s.put(pendingPackets, 0, st.Name)
			s.put(connectionChannels, float64(st.Channels), st.Name)
		})
	},
}

// eachChannel calls f for each requested channel.
func (s *scrape) eachChannel(f func(st *broker.ChannelStatus)) {
	s.eachClient(func(client broker.Client) {
		list := client.ChannelStatuses()
		for i := range list {
			f(&list[i])
		}
	})
}

// channelMetric is a metric of a channel and its source.
type channelMetric struct {
	*metric
	of func(*broker.ChannelStatus) float64
}

var channelMetrics = []channelMetric{
	{connectionGauge("channel_consumers", "Consumers on a channel"), func(st *broker.ChannelStatus) float64 { return float64(st.Consumers) }},
	{connectionGauge("channel_messages_unacked", "Delivered but not yet acknowledged messages"), func(st *broker.ChannelStatus) float64 { return float64(st.Unacked) }},
	{connectionGauge("channel_messages_unconfirmed", "Published but not yet confirmed messages"), func(st *broker.ChannelStatus) float64 { return float64(st.Unconfirmed) }},
	{connectionGauge("channel_messages_uncommitted", "Messages received in a transaction but not yet committed"), func(st *broker.ChannelStatus) float64 { return float64(st.Uncommitted) }},
	{connectionGauge("channel_acks_uncommitted", "Message acknowledgements in a transaction not yet committed"), func(st *broker.ChannelStatus) float64 { return float64(st.UncommittedAcks) }},
	{connectionGauge("consumer_prefetch", "Limit of unacknowledged messages for each consumer"), func(st *broker.ChannelStatus) float64 { return float64(st.Prefetch) }},
}

var channelPrefetch = connectionGauge("channel_prefetch", "Deprecated and will be removed in a future version")

var channelFamily = &family{
	name: "channel_metrics", objects: true, metrics: append(namesOf(channelMetrics), channelPrefetch),
	collect: func(s *scrape) {
		s.eachChannel(func(st *broker.ChannelStatus) {
			for _, m := range channelMetrics {
				s.put(m.metric, m.of(st), st.Name)
			}
		})
	},
}

func namesOf(list []channelMetric) (metrics []*metric) {
	for _, m := range list {
		metrics = append(metrics, m.metric)
	}
	return metrics
}

var channelReductions = connectionCounter("channel_process_reductions_total", "Total number of channel process reductions")

var channelProcessFamily = &family{
	name: "channel_process_metrics", objects: true, metrics: []*metric{channelReductions},
	collect: func(s *scrape) {
		s.eachChannel(func(st *broker.ChannelStatus) { s.put(channelReductions, 0, st.Name) })
	},
}

// channelCounter is a counter of a channel and its source.
type channelCounter struct {
	*metric
	of func(*broker.ChannelStats) uint64
}

var channelDeliveries = []channelCounter{
	{queueOfChannel("channel_get_ack_total", "Total number of messages fetched with basic.get in manual acknowledgement mode"), func(st *broker.ChannelStats) uint64 { return st.Got }},
	{queueOfChannel("channel_get_total", "Total number of messages fetched with basic.get in automatic acknowledgement mode"), func(st *broker.ChannelStats) uint64 { return st.GotNoAck }},
	{queueOfChannel("channel_messages_delivered_ack_total", "Total number of messages delivered to consumers in manual acknowledgement mode"), func(st *broker.ChannelStats) uint64 { return st.Delivered }},
	{queueOfChannel("channel_messages_delivered_total", "Total number of messages delivered to consumers in automatic acknowledgement mode"), func(st *broker.ChannelStats) uint64 { return st.DeliveredNoAck }},
	{queueOfChannel("channel_messages_redelivered_total", "Total number of messages redelivered to consumers"), func(st *broker.ChannelStats) uint64 { return st.Redelivered }},
	{queueOfChannel("channel_messages_acked_total", "Total number of messages acknowledged by consumers"), func(st *broker.ChannelStats) uint64 { return st.Acked }},
	{queueOfChannel("channel_get_empty_total", "Total number of times basic.get operations fetched no message"), func(st *broker.ChannelStats) uint64 { return st.GotNothing }},
}

var channelPublishes = []channelCounter{
	{exchangeOfChannel("channel_messages_published_total", "Total number of messages published into an exchange on a channel"), func(st *broker.ChannelStats) uint64 { return st.Published }},
	{exchangeOfChannel("channel_messages_confirmed_total", "Total number of messages published into an exchange and confirmed on the channel"), func(st *broker.ChannelStats) uint64 { return st.Confirmed }},
	{exchangeOfChannel("channel_messages_unroutable_returned_total", "Total number of messages published as mandatory into an exchange and returned to the publisher as unroutable"), func(st *broker.ChannelStats) uint64 { return st.Returned }},
	{exchangeOfChannel("channel_messages_unroutable_dropped_total", "Total number of messages published as non-mandatory into an exchange and dropped as unroutable"), func(st *broker.ChannelStats) uint64 { return st.Dropped }},
}

// channelQueueFamily and channelExchangeFamily have series by channel and queue, and by channel and exchange. A channel's counts
// beyond those that have names are in the totals only.
var (
	channelQueueFamily = countersOfChannels("channel_queue_metrics", channelDeliveries, func(st *broker.ChannelStatus, f func(name string, of *broker.ChannelStats)) {
		for name, of := range st.ByQueue {
			f(string(name), &of)
		}
	})
	channelExchangeFamily = countersOfChannels("channel_exchange_metrics", channelPublishes, func(st *broker.ChannelStatus, f func(name string, of *broker.ChannelStats)) {
		for name, of := range st.ByExchange {
			f(string(name), &of)
		}
	})
)

func countersOfChannels(name string, list []channelCounter, each func(st *broker.ChannelStatus, f func(name string, of *broker.ChannelStats))) *family {
	f := &family{name: name, objects: true}
	for _, m := range list {
		f.metrics = append(f.metrics, m.metric)
	}
	f.collect = func(s *scrape) {
		s.eachChannel(func(st *broker.ChannelStatus) {
			if s.total {
				for _, m := range list {
					s.put(m.metric, float64(m.of(&st.Stats)))
				}
				return
			}
			each(st, func(name string, of *broker.ChannelStats) {
				for _, m := range list {
					s.put(m.metric, float64(m.of(of)), st.Name, string(st.VHost), name)
				}
			})
		})
	}
	return f
}
