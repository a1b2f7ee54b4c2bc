<?php

namespace App\MessageHandler;

use App\Message\RefundOrder;
use Doctrine\DBAL\Connection;
use Stripe\Refund;
use Symfony\Component\Messenger\Handler\MessageHandlerInterface;

final class RefundOrderHandler implements MessageHandlerInterface
{
    private $db;

    public function __construct(Connection $db)
    {
        $this->db = $db;
    }

    public function __invoke(RefundOrder $message)
    {
        $this->db->executeStatement( // ZB153
            'INSERT INTO refunds (order_id) VALUES (?) ON CONFLICT (order_id) DO UPDATE SET tries = refunds.tries + 1',
            [$message->orderId]
        );

        Refund::create(['charge' => 'ch_1'], ['idempotency_key' => 'refund-'.$message->orderId]);
    }
}
