//go:build ignore

// SPDX-License-Identifier: Apache-2.0
//
// Frames of the small-packet engine: made by the kernel's test run of this
// program (BPF_PROG_TEST_RUN, Linux 5.18) and counted in the driver where they
// arrive. It includes nothing, so that the object depends on the compiler
// alone; what the numbers below mean stands in include/uapi/linux/bpf.h.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
typedef long long s64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

struct xdp_md {
	u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};

enum { XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT };
enum { BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_DEVMAP = 14 };

static void *(*const map_lookup)(const void *map, const void *key) = (void *)1;
static u64 (*const now_ns)(void) = (void *)5; // CLOCK_MONOTONIC
static long (*const redirect_map)(const void *map, u64 key, u64 flags) = (void *)51;
static long (*const adjust_tail)(struct xdp_md *ctx, int delta) = (void *)65;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define NET16(x) __builtin_bswap16(x)
#define NET32(x) __builtin_bswap32(x)
#define NET64(x) __builtin_bswap64(x)
#else
#define NET16(x) ((u16)(x))
#define NET32(x) ((u32)(x))
#define NET64(x) ((u64)(x))
#endif

// What frames_linux.go mirrors, byte for byte. "net" marks what is in the order of
// the wire.
#define FLOWS 1024    // a power of two
#define SLOTS 4096    // of 32 sequence numbers each
#define LEAP (1 << 30) // a larger step is damage, not loss
#define DELAYS 1184   // buckets, see delay()
#define LATE 1000000  // ns
#define SIZES 16      // a power of two
#define LOOPBACK 1    // the index of every namespace's loopback device

enum { WARMUP, WINDOW, COOLDOWN, OVER };

struct config {
	u64 gap;      // ns per burst; 0 = flat out
	u64 debt;     // ns that may be made good
	u32 gap_part; // 2^-32 ns
	u32 burst;    // frames per reading of the clock
	u32 stamp;    // every how many frames have a time
	u32 out, in;  // flows sent and received
	u32 tag;      // net
	u32 from[4], to[4]; // net, of frames received
	u16 unused0;
	u8 ip;        // 4 or 6
	u8 shared;    // several queues of the device may receive one flow
	u16 sink;     // received frames are ours to count
	u16 base;     // the first flow sent, as the receiver numbers them
	// Of each size; frames have them in turn, by number and flow.
	u32 sums[SIZES]; // what it adds to the sum of a flow, which is of the largest
	u16 lengths[SIZES], checks[SIZES], udp[SIZES]; // net: fields of IP, and that of UDP
	u16 cut[SIZES], payload[SIZES]; // bytes less than the largest; of UDP
	u16 sizes, unused[3];
};
const volatile struct config config SEC(".rodata") = {};

struct out_flow {
	u64 word;   // net, the header's bytes that hold the source port, and those around
	u32 tail;   // net, IPv6: destination port and length
	u32 sum;    // of everything in the checksum that does not change
	u32 seq[4]; // by phase
};
struct sending {
	u64 head[6];           // net, the header's bytes before those of the flow
	u64 begin, start, end, stop; // ns
	u64 began[4];         // when each phase really began
	u64 next;              // ns, of the next burst
	u64 soon;              // ns, before which none follows the last
	u64 late;              // ns, the most that a burst of the window was
	u64 slack;             // ns, how much later than begin a burst may begin
	u32 part;
	u32 phase, left, until, flow;
	u32 runs;              // the program does, but nothing is due yet
	struct out_flow flows[FLOWS];
};
struct sending sending SEC(".bss");

struct arrivals {
	u64 next;       // highest number of the window + 1
	u64 received, lost, duplicates, reordered;
	u64 ancient;    // too old to be told from a duplicate
	u64 strange;    // a damaged number
	u64 wrong;      // another length than was sent
	u64 all;        // of every phase
	u64 first, last; // ns, of stamped frames of the window
	u32 ports;      // net
	u32 lock;
	u64 contended;
	u64 bytes;      // of payload, of those received; where there are several sizes
};

struct map_def {
	u32 type, key_size, value_size, max_entries, flags;
};
struct map_def port SEC("maps") = { BPF_MAP_TYPE_DEVMAP, 4, 4, 1, 0 };
// The loader sets how many entries these have.
struct map_def arrived SEC("maps") = { BPF_MAP_TYPE_ARRAY, 4, sizeof(struct arrivals), 1, 0 };
struct map_def seen SEC("maps") = { BPF_MAP_TYPE_ARRAY, 4, 8 * SLOTS, 1, 0 };
struct map_def delays SEC("maps") = { BPF_MAP_TYPE_ARRAY, 4, 8 * (DELAYS + 1), 1, 0 };

// turn decides, at the beginning of a burst, whether one is due. A burst that
// is late belongs to the phase in which it was due; what a delay held up is
// made good at no more than twice the rate. What is still owed when the window
// has been over for LATE is not sent in it: a sender that is too slow must not
// pass for one that is late.
INLINE int turn(struct sending *s, u64 now)
{
	u64 due = now;
	u32 phase;

	if (now < s->begin) {
		s->runs = 1;
		return 0;
	}
	if (s->slack) {
		u64 later = now - s->begin;

		if (later > s->slack)
			later = s->slack;
		s->slack = 0;
		s->next += later;
		s->start += later;
		s->end += later;
		if (s->stop > s->end + LATE)
			s->stop = s->end + LATE;
	}
	if (config.gap | config.gap_part) {
		u32 part = s->part + config.gap_part;

		if (now < s->next || now < s->soon)
			return 0;
		if (now - s->next > config.debt)
			s->next = now - config.debt;
		due = s->next;
		s->next += config.gap + (part < s->part);
		s->soon = now + config.gap / 2;
		s->part = part;
	}
	phase = now >= s->stop ? OVER : due < s->start ? WARMUP : due < s->end && now < s->end + LATE ? WINDOW : COOLDOWN;
	if (!s->began[phase])
		s->began[phase] = now;
	s->phase = phase;
	if (phase == OVER)
		return 0;
	if (phase == WINDOW && now - due > s->late)
		s->late = now - due;
	s->left = config.burst;
	return 1;
}

// checksum completes that of a flow's frames.
INLINE u16 checksum(u32 sum, u32 seq, u64 stamp, u16 mark)
{
	sum += (seq & 0xffff) + (seq >> 16) + mark;
	if (stamp)
		sum += (u32)(stamp & 0xffff) + (u32)(stamp >> 16 & 0xffff) + (u32)(stamp >> 32 & 0xffff) + (u32)(stamp >> 48);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (u16)~sum;
	return sum ? sum : 0xffff;
}

// generate writes the whole header each time: the page comes back as the last
// router left it.
INLINE int generate(struct xdp_md *ctx)
{
	u8 *p = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct sending *s = &sending;
	struct out_flow *f;
	u64 now = 0, stamp = 0;
	u32 i, seq, total, *count, k = 0;
	u16 mark, sum;

	if (!s->left) {
		now = now_ns();
		if (!turn(s, now))
			return XDP_DROP;
	}
	s->left--;
	if (s->until) {
		s->until--;
	} else {
		s->until = config.stamp - 1;
		if (!now)
			now = now_ns();
		stamp = NET64(now);
	}
	i = s->flow;
	s->flow = i + 1 < config.out ? i + 1 : 0;
	i &= FLOWS - 1;
	f = &s->flows[i];
	count = &f->seq[s->phase & 3];
	total = f->sum;
	if (config.sizes > 1) {
		k = (*count + config.base + i) % config.sizes & (SIZES - 1);
		if (config.cut[k] && adjust_tail(ctx, -(int)config.cut[k]))
			return XDP_ABORTED;
		p = (void *)(long)ctx->data;
		end = (void *)(long)ctx->data_end;
		total += config.sums[k];
	}
	seq = NET32(*count);
	(*count)++;
	mark = NET16((u16)(s->phase << 14 | (config.base + i)));
	sum = checksum(total, seq, stamp, mark);
	if (config.ip == 4) {
		if (p + 60 > end)
			return XDP_ABORTED;
		*(u64 *)(p + 0) = s->head[0];
		*(u64 *)(p + 8) = s->head[1];
		*(u64 *)(p + 16) = s->head[2];
		*(u64 *)(p + 24) = s->head[3];
		*(u64 *)(p + 32) = f->word;
		if (config.sizes > 1) {
			*(u16 *)(p + 16) = config.lengths[k];
			*(u16 *)(p + 24) = config.checks[k];
			*(u16 *)(p + 38) = config.udp[k];
		}
		p += 40;
	} else {
		if (p + 80 > end)
			return XDP_ABORTED;
		*(u64 *)(p + 0) = s->head[0];
		*(u64 *)(p + 8) = s->head[1];
		*(u64 *)(p + 16) = s->head[2];
		*(u64 *)(p + 24) = s->head[3];
		*(u64 *)(p + 32) = s->head[4];
		*(u64 *)(p + 40) = s->head[5];
		*(u64 *)(p + 48) = f->word;
		*(u32 *)(p + 56) = f->tail;
		if (config.sizes > 1) {
			*(u16 *)(p + 18) = config.lengths[k];
			*(u16 *)(p + 58) = config.udp[k];
		}
		p += 60;
	}
	*(u16 *)(p + 0) = sum;
	*(u32 *)(p + 2) = config.tag;
	*(u32 *)(p + 6) = seq;
	*(u64 *)(p + 10) = stamp;
	*(u16 *)(p + 18) = mark;
	return redirect_map(&port, 0, 0);
}

INLINE void add(u64 *counter, u64 n)
{
	if (config.shared)
		__sync_fetch_and_add(counter, n);
	else
		*counter += n;
}

// see takes note of one number of the window. Which numbers were seen is
// remembered for the last SLOTS × 32 of them; each slot says which numbers it
// is about, so that none need be cleared when numbers are skipped.
INLINE void see(struct arrivals *a, u64 *slots, u32 seq, u32 bytes)
{
	s32 ahead = (s32)(seq - (u32)a->next);
	u64 n = a->next + (s64)ahead, block = n >> 5, *slot = &slots[block & (SLOTS - 1)], word = *slot;
	u32 bit = 1u << (n & 31);

	if (ahead > LEAP || (ahead < 0 && (u64)(-(s64)ahead) > a->next)) {
		a->strange++;
		return;
	}
	if (ahead < 0 && ((a->next - 1) >> 5) - block >= SLOTS) {
		a->ancient++;
		return;
	}
	if ((u32)(word >> 32) != (u32)(block / SLOTS))
		word = (u64)(u32)(block / SLOTS) << 32;
	if (ahead < 0) {
		if (word & bit) {
			a->duplicates++;
			return;
		}
		a->reordered++;
		a->lost--;
	} else {
		a->lost += ahead;
		a->next = n + 1;
	}
	*slot = word | bit;
	a->received++;
	if (config.sizes > 1)
		a->bytes += bytes;
}

// delay enters a one-way delay into buckets of 1/32 of an octave: the first 64
// are of 1 ns. The last counter is of frames that came before they were sent.
INLINE void delay(u64 *buckets, u64 sent, u64 now)
{
	u64 v = now - sent, w;
	u32 shift = 0, i;

	if ((s64)v < 0) {
		__sync_fetch_and_add(&buckets[DELAYS], 1);
		return;
	}
	if (v >= 1ull << 41)
		v = (1ull << 41) - 1;
	w = v >> 6;
	if (w >> 32) { shift += 32; w >>= 32; }
	if (w >> 16) { shift += 16; w >>= 16; }
	if (w >> 8) { shift += 8; w >>= 8; }
	if (w >> 4) { shift += 4; w >>= 4; }
	if (w >> 2) { shift += 2; w >>= 2; }
	if (w >> 1) { shift += 1; w >>= 1; }
	shift += w; // the number of octaves above 64
	i = shift * 32 + (u32)(v >> (shift & 63));
	if (i < DELAYS)
		__sync_fetch_and_add(&buckets[i], 1);
}

// locked: two queues may bring frames of one flow at the same time.
INLINE int locked(struct arrivals *a)
{
	int i;

	if (!config.shared)
		return 1;
	for (i = 0; i < 1024; i++)
		if (!__sync_val_compare_and_swap(&a->lock, 0, 1))
			return 1;
	return 0;
}

INLINE int count(u8 *payload, u32 ports, u16 length)
{
	u16 mark = NET16(*(u16 *)(payload + 16));
	u64 stamp, *slots, *buckets, now;
	u32 flow = mark & 0x3fff, seq = NET32(*(u32 *)(payload + 4)), zero = 0, k = 0;
	struct arrivals *a;

	if (*(u32 *)payload != config.tag)
		return XDP_PASS;
	a = map_lookup(&arrived, &flow);
	if (!a || a->ports != ports)
		return XDP_PASS;
	if (config.sizes > 1)
		k = (seq + flow) % config.sizes & (SIZES - 1);
	if (length != config.lengths[k]) {
		add(&a->wrong, 1);
		return XDP_DROP;
	}
	add(&a->all, 1);
	if (mark >> 14 != WINDOW)
		return XDP_DROP;
	slots = map_lookup(&seen, &flow);
	if (!slots)
		return XDP_DROP;
	if (!locked(a)) {
		__sync_fetch_and_add(&a->contended, 1);
		return XDP_DROP;
	}
	see(a, slots, seq, config.payload[k]);
	stamp = *(u64 *)(payload + 8);
	if (stamp) {
		now = now_ns();
		if (!a->first)
			a->first = now;
		a->last = now;
	}
	if (config.shared)
		__sync_val_compare_and_swap(&a->lock, 1, 0);
	if (stamp) {
		buckets = map_lookup(&delays, &zero);
		if (buckets)
			delay(buckets, NET64(stamp), now);
	}
	return XDP_DROP;
}

// receive counts what belongs to this load and lets everything else pass.
INLINE int receive(struct xdp_md *ctx)
{
	u8 *p = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (config.ip == 4) {
		if (p + 60 > end || *(u16 *)(p + 12) != NET16(0x0800) || p[14] != 0x45 || p[23] != 17)
			return XDP_PASS;
		if (*(u16 *)(p + 20) & NET16(0x3fff)) // a fragment
			return XDP_PASS;
		if (*(u32 *)(p + 26) != config.from[0] || *(u32 *)(p + 30) != config.to[0])
			return XDP_PASS;
		return count(p + 42, *(u32 *)(p + 34), *(u16 *)(p + 16));
	}
	if (p + 80 > end || *(u16 *)(p + 12) != NET16(0x86dd) || p[14] >> 4 != 6 || p[20] != 17)
		return XDP_PASS;
	if (*(u32 *)(p + 22) != config.from[0] || *(u32 *)(p + 26) != config.from[1] ||
	    *(u32 *)(p + 30) != config.from[2] || *(u32 *)(p + 34) != config.from[3])
		return XDP_PASS;
	if (*(u32 *)(p + 38) != config.to[0] || *(u32 *)(p + 42) != config.to[1] ||
	    *(u32 *)(p + 46) != config.to[2] || *(u32 *)(p + 50) != config.to[3])
		return XDP_PASS;
	return count(p + 62, *(u32 *)(p + 54), *(u16 *)(p + 18));
}

// frames is both ends of a load. A test run's frames come from the loopback
// device; no other device has its index.
SEC("xdp/frames") int frames(struct xdp_md *ctx)
{
	if (config.out && ctx->ingress_ifindex == LOOPBACK)
		return generate(ctx);
	return config.sink ? receive(ctx) : XDP_PASS;
}

// pass is for the device at the other end of a virtual link, which takes
// frames only where it has a program.
SEC("xdp/pass") int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}
