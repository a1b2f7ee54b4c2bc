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
        $this->db->insert('fences', ['order_id' => $message->orderId, 'step' => 'refund']);

        Refund::create(['charge' => 'ch_1'], ['idempotency_key' => 'refund-'.$message->orderId]);
    }
}
